"""Write and read files of scores, and format scores as lines."""

import contextlib
import hashlib
import json
import re
from pathlib import Path
from typing import Any

from nmt import metrics
from nmt.atomic import json_text, read_at_most, write_together
from nmt.config.types import check_value, say
from nmt.errors import UserError, reason_of
from nmt.run.paths import score_files
from nmt.run.translation import Translation

_MOST_BYTES = 2**24  # of a file of scores
# Keys of the conditions, beside the run, that scores depend on
MADE_WITH = ("decoding", "checkpoint", "average", "int8", "data", "references")

_KINDS = {"decoding": dict[str, Any], "ensemble": list[str]}  # of parts that are read here


def read_scores(file: Path) -> dict[str, Any]:
    """Read the scores that `write_scores` wrote. Raises UserError naming the file if it is missing, broken or large."""
    try:
        scores = json.loads(read_at_most(file, _MOST_BYTES).decode("utf-8"))
        check_value(dict[str, Any], scores, "scores")
        for key, kind in _KINDS.items():
            if key in scores:
                check_value(kind, scores[key], f"scores.{key}")
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{file} is broken ({reason_of(error)})") from error
    return scores


def write_scores(
    directory: Path,
    split: str,
    scores: dict[str, Any],
    translations: list[Translation],
    *,
    trained_in: Path | None = None,
) -> Path:
    """Write the `score_files` of a split, with the cost of training from `trained_in`. Returns the first path."""
    scores_file, hypotheses_file = score_files(directory, split)
    text = "".join(f"{each.text}\n" for each in translations)
    content = {"split": split, **_training(trained_in or directory, split), **scores}
    files = {hypotheses_file: text, scores_file: json_text(content)}
    if "log_prob" in scores:
        log_probs = "".join(f"{each.log_prob:.4f}\n" for each in translations)
        files[hypotheses_file.with_name(hypotheses_file.name.replace("hypotheses", "log_probs"))] = log_probs
    write_together(files)
    return scores_file


def is_repeated(file: Path, scores: dict[str, Any]) -> bool:
    """True if a file of scores is missing or broken, or if its scores were made in the same way as these."""
    try:
        return _made_with(read_scores(file)) == _made_with(scores)
    except UserError:
        return True


def _made_with(scores: dict[str, Any]) -> dict[str, Any]:
    signatures = {
        name: result["signature"]
        for name, result in scores.items()
        if isinstance(result, dict) and "signature" in result
    }
    return {key: scores.get(key) for key in MADE_WITH} | signatures


def folder_name(changed: dict[str, Any]) -> str:
    """A name for scores with the settings `changed`: beam_size-1_checkpoint-last, which Hydra reads without quotes.

    A long name, or a name with other characters, is cut to 80 and ends in its digest.
    """
    name = "_".join(f"{key.removeprefix('decoding.')}-{say(value)}" for key, value in changed.items())
    safe = re.sub(r"[^\w.+-]+", "-", name)
    if safe != name or len(safe) > 80:
        safe = f"{safe[:80]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return safe or "again"


def _training(directory: Path, split: str) -> dict[str, Any]:
    """The cost of training, from the file with the most steps: scoring again does not measure it again."""
    found: dict[int, Any] = {}
    for each in (split, "test", "val"):
        if training := training_in(score_files(directory, each)[0]):
            found[training["steps"]] = training
    return {"training": found[max(found)]} if found else {}


def training_in(file: Path) -> dict[str, Any] | None:
    """The cost of training recorded in a file of scores; None if the file is missing, broken or has none."""
    with contextlib.suppress(UserError):
        training = read_scores(file).get("training")
        return training if isinstance(training, dict) and isinstance(training.get("steps"), int) else None
    return None


def score_lines(scores: dict[str, Any]) -> str:
    """The scores as readable lines: `BLEU 35.1 ± 1.5  nrefs:1|…`."""
    lines = []
    for name, result in scores.items():
        if isinstance(result, dict) and "signature" in result:
            interval = "" if result["ci"] is None else f" ± {result['ci']:.2f}"
            label = metrics.label(name, result["signature"])
            lines.append(f"{label:4} {result['score']:.2f}{interval}  {result['signature']}")
    if "log_prob" in scores:
        result = scores["log_prob"]
        lines.append(
            f"log p {result['sum']:.2f}  {result['per_piece']:.4f} a piece  perplexity {result['perplexity']:.2f}"
        )
    if "aer" in scores:
        result = scores["aer"]
        lines.append(
            f"AER  {result['score']:.3f}  precision {result['precision']:.3f}  recall {result['recall']:.3f}"
        )
    for label, words in scores.get("weighed_words", {}).items():
        lines.append(f"{label}: " + ", ".join(f"{word} {weight:.2f}" for word, weight in words[:5]))
    if "importance" in scores:
        result = scores["importance"]
        lines.append(f"sentences that matter: precision {result['precision']:.3f}  mass {result['mass']:.3f}")
    lines += [f"note  {each['text']}" for each in scores.get("observations", [])]
    return "\n".join(lines)
