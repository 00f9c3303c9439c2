"""The playground's contents as HTML and plain text. Text from a user or a model is escaped."""

from collections.abc import Sequence
from html import escape

from nmt.data.unknown import unknown_message
from nmt.demo.session import Choices, Explored, Explorer, Unit
from nmt.errors import UserError
from nmt.plotting import Group, alignment_page
from nmt.plotting.sentence import Sentence, drawable
from nmt.run.history import History

PARTS = "A line as long as this is translated in parts: its words cannot be chosen."


def framed(sentences: Sequence[Sentence | Group], explorer: Explorer) -> str:
    """An iframe with the interactive attention page of sentences."""
    source_lang, target_lang = explorer.run.languages or (None, None)
    page = alignment_page(
        sentences, title="attention", source_lang=source_lang, target_lang=target_lang, is_part=True
    )
    return f'<iframe title="attention" srcdoc="{escape(page)}"></iframe>'


def attention(explorer: Explorer, explored: Explored, unit: Unit, layer: int | None, head: int | None) -> str:
    """The attention page of one translation."""
    title: str = "words" if explored.weights is None else unit
    if explored.weights is not None and explorer.num_layers * explorer.num_heads > 1:
        chosen = [f"{name} {each}" for name, each in (("layer", layer), ("head", head)) if each is not None]
        title = f"{title}, {', '.join(chosen) or 'mean over layers and heads'}"
    return framed([explored.sentence(unit, layer, head, title=title)], explorer)


def n_best(explored: Explored) -> str:
    """The n-best list with scores and log-probabilities."""
    found = [each for each in (explored.best, *explored.best.others) if each.text]
    rows = "".join(
        f"<tr><td>{each.score:.3f}</td><td>{each.log_prob:.2f}</td>"
        f'<td dir="auto">{escape(drawable(each.text))}</td></tr>'
        for each in found
    )
    head = "<tr><th>score</th><th>log p</th><th>translation</th></tr>"
    return f"<table>{head}{rows}</table>" if found else ""


def message(explorer: Explorer, line: str, choices: Choices, explored: Explored) -> str:
    """One line about the choices, and the cost of the held attention."""
    unknown = explorer.run.tokenizer.unknown_characters([line])
    said = [unknown_message(1, 1, "lines", *unknown)] if unknown else []
    if not explored.ids:
        has_pieces = len(explorer.run.tokenizer.encode_source([line])[0]) > 1  # the end of sentence is one
        return escape("; ".join([*said, PARTS] if has_pieces else said))
    if choices.prefix:
        said.append(f"its first {len(choices.prefix)} pieces are as chosen")
    if choices.pins:
        free, log_prob = explorer.free(line, choices).best.log_prob, explored.best.log_prob
        of_layer = f" of layer {choices.layer}" if explorer.num_layers > 1 else ""
        said.append(
            f"attention{of_layer} held: log p {log_prob:.2f}, free {free:.2f}, so it costs {free - log_prob:.2f} nats"
        )
    return escape("; ".join(said))


def beside(explorers: Sequence[Explorer], line: str, target: str) -> str:
    """The line translated by each run, or a given target forced in each. Raises UserError if it is too long for one."""
    sentences = []
    for each in explorers:
        explored = each.force(line, target) if target.strip() and line.strip() else each.explore(line)
        title = f"{each.run.name}, log p {explored.best.log_prob:.2f}"
        sentences.append(explored.sentence(title=title, note=explored.best.text))
    return framed([Group(line, sentences, is_series=False)], explorers[0])


def over_time(explorer: Explorer) -> str:
    """The run's sample sentences at each validation, with a slider."""
    try:
        history = History.load(explorer.run.directory / "alignments")
    except OSError:
        return (
            f"{escape(explorer.run.name)} has kept no history: it was trained without callbacks.alignments."
        )
    except UserError as error:
        return escape(str(error))
    return framed(history.groups(), explorer)
