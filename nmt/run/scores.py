"""Writing the scores of a run to files, and as lines for a person."""

import contextlib
import json
from pathlib import Path
from typing import Any

from nmt import metrics
from nmt.files import json_text, write_together
from nmt.run.files import score_files
from nmt.run.translation import Translation


def write_scores(
    directory: Path, split: str, scores: dict[str, Any], translations: list[Translation]
) -> None:
    """Write the `score_files` of a split."""
    scores_file, hypotheses_file = score_files(directory, split)
    text = "".join(f"{each.text}\n" for each in translations)
    content = {"split": split, **_training(directory, split), **scores}
    write_together({hypotheses_file: text, scores_file: json_text(content)})


def _training(directory: Path, split: str) -> dict[str, Any]:
    """What training cost, by the file with the most steps: scoring again does not measure it again."""
    found: dict[int, Any] = {}
    for each in (split, "test", "val"):
        if training := training_in(score_files(directory, each)[0]):
            found[training["steps"]] = training
    return {"training": found[max(found)]} if found else {}


def training_in(file: Path) -> dict[str, Any] | None:
    """What a file of scores says that training cost; None where it is missing, broken or says nothing."""
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        training = json.loads(file.read_text("utf-8"))["training"]
        return training if "steps" in training else None
    return None


def report(scores: dict[str, Any]) -> str:
    """The scores as lines a person reads: `BLEU 35.1 ± 1.5  nrefs:1|…`."""
    lines = []
    for name, result in scores.items():
        if isinstance(result, dict) and "signature" in result:
            interval = "" if result["ci"] is None else f" ± {result['ci']:.2f}"
            label = metrics.label(name, result["signature"])
            lines.append(f"{label:4} {result['score']:.2f}{interval}  {result['signature']}")
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
    return "\n".join(lines)
