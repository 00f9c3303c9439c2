"""Replace the unknown words of a translation through its attention (Jean et al. 2015; Luong et al. 2015)."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from nmt import alignment
from nmt.data.tokenizer import Tokenizer
from nmt.decoding import DecodingSettings, Hypothesis
from nmt.errors import UserError
from nmt.lines import read_lines
from nmt.models.base import Translator


def dictionary_of(settings: DecodingSettings, translator: Translator) -> Mapping[str, str] | None:
    """The dictionary for unknown words, empty if no file is given; None if unknown words stay.

    Raises UserError for a model without attention, and for a file that cannot be read.
    """
    if not settings.replace_unknown:
        return None
    if not translator.has_attention:
        raise UserError(f"decoding.replace_unknown=true needs attention, {translator.name} has none")
    if settings.dictionary is None:
        return {}
    file = Path(settings.dictionary).expanduser()
    try:
        return _read(file, file.stat().st_mtime_ns)
    except OSError as error:
        raise UserError(f"decoding.dictionary={file}: cannot read it ({error.strerror})") from error


def spell_unknown(
    tokenizer: Tokenizer, source: str, hypothesis: Hypothesis, dictionary: Mapping[str, str] | None
) -> dict[int, str]:
    """New spellings of pieces, by their places in `hypothesis.ids`, for `Tokenizer.decoded_text`.

    A target word with an unknown piece becomes source word j, or the dictionary's translation of that word:

        j = argmax_j a_tj, with the weights a of words (`alignment.weights_between`)

    In text without spaces a character counts as a word. Unknown words stay if `dictionary` is None, and a word if its
    attention is all on the end of sentence.
    """
    ids, weights = hypothesis.ids, hypothesis.weights
    signs = {place: tokenizer.unknown_sign for place, each in enumerate(ids) if each == tokenizer.unk_id}
    if not signs or weights is None or dictionary is None:
        return {}
    target = tokenizer.decoded_side(ids, "auto", signs)
    target = target._replace(sizes=[1] * len(target.sizes))
    of_source = tokenizer.source_side(source.lower() if tokenizer.lowercase else source)
    between = alignment.weights_between(weights.float().numpy()[: len(ids)], target, of_source)
    links = sorted(alignment.links_from_weights(between, sizes=of_source.sizes))
    spelled: dict[int, str] = {}
    for group in {target.groups[place] for place in signs}:
        word = "".join(of_source.labels[i] for i, j in links if j == group)
        places = [place for place, each in enumerate(target.groups) if each == group]
        first = signs.get(places[0]) or tokenizer.target_pieces([ids[places[0]]])[0]
        space = " " if places[0] > 0 and first[0] in "▁ " else ""
        if word:
            spelled |= dict.fromkeys(places, "") | {places[-1]: space + dictionary.get(word, word)}
    return spelled


@lru_cache(maxsize=1)  # read once for all blocks of lines
def _read(file: Path, _: int) -> Mapping[str, str]:
    """The translation of each word: of several lines for a word the first."""
    found: dict[str, str] = {}
    for number, line in enumerate(read_lines(file), 1):
        entry = [" ".join(part.split()) for part in line.split("\t")]
        if len(entry) != 2 or "" in entry:
            raise UserError(
                f"{file}, line {number}: give a word, a tab and its translation, not {line!r:.80}"
            )
        found.setdefault(*entry)
    return found
