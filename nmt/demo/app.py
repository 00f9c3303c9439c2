"""The playground page: Gradio components that call `session.py` and `views.py`."""

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gradio as gr
from starlette.middleware import Middleware

from nmt.demo import views
from nmt.demo.guard import Guard
from nmt.demo.session import Choices, Explored, Explorer
from nmt.errors import UserError

FRAME = (Path(__file__).with_name("frame.js")).read_text("utf-8")
CSS = """iframe { border: 0; width: 100%; height: 10rem; }
textarea { unicode-bidi: plaintext; text-align: start; }
#best td, #best th { padding: .1rem 1rem .1rem 0; text-align: start; } #best th { font-weight: normal; opacity: .7; }
#best td:nth-child(-n+2) { font-variant-numeric: tabular-nums; }"""
MEAN = "mean"
BETWEEN_FRAMES = 0.05  # seconds
MOST_CHARACTERS = 1000  # of a text: the memory of its attention grows with the square
ONE_AT_A_TIME: Any = {"concurrency_id": "model", "concurrency_limit": 1}
MOST_SESSIONS = 10  # pages whose translation is remembered
TEXT = f"text (at most {MOST_CHARACTERS:,} characters)"


@dataclass
class Situation:
    """The state of a user's page: run number, source line, choices, translation, position of the clicked piece."""

    number: int = 0
    line: str = ""
    choices: Choices = Choices()  # noqa: RUF009
    explored: Explored | None = None
    position: int | None = None


def build_app(explorers: Sequence[Explorer]) -> gr.Blocks:
    """The page with its tabs: translate and choose, runs side by side, attention over time."""
    with gr.Blocks(title="Translation playground", analytics_enabled=False) as app:
        with gr.Tab("Translate"):
            Playground(explorers).build()
        with gr.Tab("Side by side", visible=len(explorers) > 1):
            _side_by_side(explorers)
        with gr.Tab("Over time"):
            names = [each.run.name for each in explorers]
            run = gr.Dropdown(names, value=names[0], type="index", label="run", visible=len(names) > 1)
            history = gr.HTML(views.over_time(explorers[0]), js_on_load=FRAME, elem_id="history")
            run.change(lambda number: views.over_time(explorers[number]), run, history)
    return app


def check_length(*texts: str) -> None:
    """Raise gr.Error for a text that is too long; a browser asks for none, another client may."""
    if max(map(len, texts)) > MOST_CHARACTERS:
        raise gr.Error(f"A text has at most {MOST_CHARACTERS:,} characters.", print_exception=False)


def remembered(now: Situation) -> Explored:
    """A page's translation. Raises gr.Error if it is forgotten: those of the last pages are remembered."""
    if now.explored is None:
        raise gr.Error("This translation is forgotten: translate the text again.", print_exception=False)
    return now.explored


def launch(app: gr.Blocks, *, host: str, port: int, share: bool, wait: bool = True) -> None:
    """Serve until interrupted, then end the process; without `wait`, serve in a thread and return."""
    names = (host, ".gradio.live") if share else (host,)
    # gradio asks its own server whether it is up, through a proxy where one is set, and gives up on a slow machine.
    direct = (os.environ.get("no_proxy") or os.environ.get("NO_PROXY"), "127.0.0.1", "localhost", host)
    os.environ["no_proxy"] = ",".join(filter(None, direct))
    if wait and not share:  # gradio would say beside it how its own function gives a public address
        print(f"the playground is at http://{host}:{port} (share=true: also at a public address)", flush=True)
    app.launch(
        _frontend=False,  # do not ask
        server_name=host,
        server_port=port,
        share=share,
        prevent_thread_lock=True,
        quiet=not (wait and share),
        max_threads=4,
        state_session_capacity=MOST_SESSIONS,
        app_kwargs={"middleware": [Middleware(Guard, names=names)]},
        theme=gr.themes.Default(font=["system-ui", "sans-serif"], font_mono=["monospace"]),
        css=CSS,
        footer_links=[],
    )
    if not wait:
        return
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    ended.wait()
    app.close(verbose=False)
    print("\nended", flush=True)
    os._exit(0)  # a translation that is under way would abort the interpreter's own end


def _side_by_side(explorers: Sequence[Explorer]) -> None:
    line = gr.Textbox(label=TEXT, max_length=MOST_CHARACTERS, elem_id="both-line")
    target = gr.Textbox(
        label="a translation for all of them (leave empty: each its own)",
        max_length=MOST_CHARACTERS,
        elem_id="both-target",
    )
    button = gr.Button("Translate", variant="primary", elem_id="both-go")
    view = gr.HTML(js_on_load=FRAME, elem_id="both")

    def show(line: str, target: str) -> str:
        check_length(line, target)
        try:
            return views.beside(explorers, line, target)
        except UserError as error:
            raise gr.Error(str(error), print_exception=False) from error

    gr.on([button.click, line.submit, target.submit], show, [line, target], view, **ONE_AT_A_TIME)


class Playground:
    """The tab to translate and choose."""

    def __init__(self, explorers: Sequence[Explorer]) -> None:
        self.explorers = explorers

    def build(self) -> None:
        """Create the components and connect their events."""
        names = [each.run.name for each in self.explorers]
        situation = gr.State(Situation())
        with gr.Row():
            line = gr.Textbox(label=TEXT, max_length=MOST_CHARACTERS, lines=2, scale=4, elem_id="line")
            go = gr.Button("Translate", variant="primary", scale=1, elem_id="go")
        self.text = gr.Textbox(label="translation", interactive=False, lines=2, elem_id="text")
        self.said = gr.HTML(visible=False, elem_id="said")
        with gr.Row():
            run = gr.Dropdown(names, value=names[0], type="index", label="run", visible=len(names) > 1)
            unit = gr.Radio(["words", "pieces"], value="words", label="shown by", elem_id="unit")
            self.layer, self.head = self._layers_and_heads(0, MEAN, MEAN)
        looks: list[Any] = [unit, self.layer, self.head]
        self.view = gr.HTML(js_on_load=FRAME, elem_id="view")
        gr.Markdown("Click a word of the translation to take another in its place, or to hold its attention.")
        self.others = gr.Radio([], label="take another", visible=False, elem_id="others")
        self.sources = gr.CheckboxGroup([], label="attend to", visible=False, elem_id="sources")
        with gr.Row():
            hold = gr.Button("Hold the attention", size="sm", elem_id="hold")
            free = gr.Button("Start again", size="sm", elem_id="free")
        self.best = gr.HTML(elem_id="best", apply_default_css=False)
        shown = [situation, self.text, self.said, self.view, self.others, self.sources, self.best]
        shown += [self.layer, self.head]

        def start(now: Situation, number: int, line: str, *looks: Any) -> Iterator[dict]:
            if number != now.number:  # whose layers and heads are others
                looks = (looks[0], MEAN, MEAN)
            yield from self._translate(situation, Situation(number, line), looks)

        def take(now: Situation, piece: int, *looks: Any) -> Iterator[dict]:
            yield from self._translate(situation, self._taking(now, piece), looks)

        def hold_it(now: Situation, words: list[int], *looks: Any) -> Iterator[dict]:
            yield from self._translate(situation, self._holding(now, words, looks[1]), looks)

        begin = [go.click, line.submit, free.click, run.input]
        gr.on(begin, start, [situation, run, line, *looks], shown, **ONE_AT_A_TIME)
        self.others.input(take, [situation, self.others, *looks], shown, **ONE_AT_A_TIME)
        hold.click(hold_it, [situation, self.sources, *looks], shown, **ONE_AT_A_TIME)
        gr.on([each.input for each in looks], self._look, [situation, *looks], self.view)
        self.view.select(self._point, [situation, unit], [situation, self.others, self.sources])

    def _layers_and_heads(self, number: int, layer: Any, head: Any) -> tuple[gr.Dropdown, gr.Dropdown]:
        """The choice of a layer and of a head of a run, where it has several."""
        explorer = self.explorers[number]

        def choice(label: str, count: int, value: Any) -> gr.Dropdown:
            return gr.Dropdown(
                [MEAN, *range(count)], value=value, label=label, visible=count > 1, elem_id=label
            )

        return choice("layer", explorer.num_layers, layer), choice("head", explorer.num_heads, head)

    def _translate(self, state: gr.State, now: Situation, looks: Sequence[Any]) -> Iterator[dict]:
        """Show the growing greedy translation, then the result of the search with its attention and n-best list."""
        check_length(now.line)
        explorer = self.explorers[now.number]
        last = -BETWEEN_FRAMES
        try:
            for text in explorer.stream(now.line, now.choices):
                # The browser needs longer to show a piece than the model to find it
                if time.monotonic() - last >= BETWEEN_FRAMES:
                    yield {self.text: text}
                    last = time.monotonic()
            now = replace(now, explored=explorer.explore(now.line, now.choices), position=None)
        except ValueError as error:  # one piece more than a translation may have
            raise gr.Error(str(error), print_exception=False) from error
        assert now.explored is not None
        said = views.message(explorer, now.line, now.choices, now.explored)
        layer, head = self._layers_and_heads(now.number, *looks[1:])
        yield {
            state: now,
            self.text: now.explored.best.text,
            self.said: gr.HTML(said, visible=bool(said)),
            self.view: self._look(now, *looks),
            self.best: views.n_best(now.explored),
            self.others: gr.Radio(visible=False),
            self.sources: gr.CheckboxGroup(visible=False),
            self.layer: layer,
            self.head: head,
        }

    def _look(self, now: Situation, unit: Any, *chosen: Any) -> str:
        if now.explored is None:
            return ""
        layer, head = (None if each == MEAN else each for each in chosen)
        return views.attention(self.explorers[now.number], now.explored, unit, layer, head)

    def _point(
        self, now: Situation, unit: Any, event: gr.EventData
    ) -> tuple[Situation, gr.Radio, gr.CheckboxGroup]:
        """Show the alternatives to the clicked word, and the source words that it can attend to."""
        explored = remembered(now)
        position = explored.position(unit, event.index)
        if position is None:
            raise gr.Error(views.PARTS, print_exception=False)
        others = [
            (f"{each.label}  {each.probability:.3f}", each.piece) for each in explored.alternatives[position]
        ]
        label = f"instead of {explored.labels[position]} (piece {position})"
        words = [(word, number) for number, word in enumerate(explored.best.source_words)]
        has_attention = explored.weights is not None
        return (
            replace(now, position=position),
            gr.Radio(others, value=None, label=f"take another {label}", visible=True),
            gr.CheckboxGroup(words, value=[], label=f"attend, {label}, to", visible=has_attention),
        )

    def _taking(self, now: Situation, piece: int) -> Situation:
        explored = remembered(now)
        pins = self._earlier_pins(now)
        prefix = (*explored.ids[: now.position], piece)
        return replace(now, choices=replace(now.choices, prefix=prefix, pins=pins))

    @staticmethod
    def _earlier_pins(now: Situation) -> dict[int, tuple[int, ...]]:
        """What is held up to the clicked piece: the text after it will be another."""
        assert now.position is not None
        return {at: pieces for at, pieces in now.choices.pins.items() if at <= now.position}

    def _holding(self, now: Situation, words: list[int], layer: Any) -> Situation:
        """The situation with the attention of the clicked piece held: in the chosen layer, by default the top one."""
        if now.explored is None or now.position is None or not words:
            advice = "Click a word of the translation, then tick the source words it shall attend to."
            raise gr.Error(advice, print_exception=False)
        pieces = now.explored.pieces_of(words)
        if not pieces:
            raise gr.Error("These source words have no pieces.", print_exception=False)
        top = self.explorers[now.number].num_layers - 1
        choices = Choices(
            now.explored.ids[: now.position],
            {**self._earlier_pins(now), now.position: pieces},
            top if layer == MEAN else layer,
        )
        return replace(now, choices=choices)
