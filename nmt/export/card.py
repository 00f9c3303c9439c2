"""The README.md of an export: a model card with the front matter that the Hub reads."""

import logging
import re
from typing import Any

import yaml

from nmt import metrics
from nmt.atomic import escape_markdown
from nmt.checkpoint import checkpoint_name
from nmt.errors import printable
from nmt.run.paths import score_files
from nmt.run.run import Run
from nmt.run.scores import read_scores

log = logging.getLogger(__name__)


def card(
    run: Run, usage: str, *, library: str | None, license: str, checkpoint: str, average: int | None
) -> str:
    """The model card: model, `usage`, scores with their signatures, data and licence.

    checkpoint, average: the weights, as in `Run.load`; scores of other weights or other data are left out.
    """
    front: dict[str, Any] = {"license": license}
    # The Hub accepts only ISO 639 codes: pt for pt_BR. A column of labels has none, and is no translation
    codes = [re.split("[-_]", each)[0].lower() for each in run.languages or ()]
    if codes and all(re.fullmatch("[a-z]{2,3}", each) for each in codes):
        front |= {"language": list(dict.fromkeys(codes)), "pipeline_tag": "translation"}
    if library is not None:
        front["library_name"] = library
    pair = "Text to text" if run.languages is None else escape_markdown(" to ".join(run.languages))
    model = run.translator
    vocabulary = "one joint vocabulary" if run.tokenizer.joint else "a vocabulary for each side"
    case = "; text is lower-cased before" if run.tokenizer.lowercase else ""
    sizes = f"{model.num_parameters:,} parameters, {run.tokenizer.tgt_vocab_size:,} target pieces of SentencePiece"
    return f"""---
{yaml.safe_dump(front, sort_keys=False).strip()}
---

# {pair}: {model.name}

{sizes}, {vocabulary}{case}.

## Use

{usage.strip()}

## Scores

{_scores(run, checkpoint, average)}

## Data

{_data(run)}

## Licence

{license}. What a model may be used for depends on its training text too.
"""


def _scores(run: Run, checkpoint: str, average: int | None) -> str:
    """A table of the scores of all splits, decoded by this package, not by the program that reads the export."""
    rows = []
    if average is None:
        checkpoint = checkpoint_name(run.directory, checkpoint)
    for split in ("test", "val"):
        file, _ = score_files(run.directory, split)
        if not file.exists():
            continue
        try:
            rows += _rows(split, read_scores(file), (checkpoint, average, False))
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
            log.warning("%s is left out of the model card: %s", file, error)
    head = "| split | score | value | sacreBLEU's signature |\n|---|---|---|---|\n"
    return head + "\n".join(rows) if rows else "Not scored."


def _rows(split: str, scores: dict[str, Any], weights: tuple[Any, ...]) -> list[str]:
    """A row per score; no rows for scores of other weights or other data."""
    scored = scores.get("checkpoint", "best"), scores.get("average"), scores.get("int8", False)
    if scored != weights or "data" in scores:
        return []
    beam = f", beam {scores['decoding']['beam_size']:d}" if "decoding" in scores else ""
    rows = []
    for name, found in scores.items():
        if isinstance(found, dict) and "signature" in found:
            interval = "" if found["ci"] is None else f" ± {found['ci']:.2f}"
            # | would end the cell, and ` would end the code
            signature = printable(str(found["signature"]))
            label = escape_markdown(metrics.label(name, signature)).replace("|", "\\|")
            signature = signature.replace("|", "\\|").replace("`", "'")
            rows.append(f"| {split}{beam} | {label} | {found['score']:.2f}{interval} | `{signature}` |")
    return rows


def _data(run: Run) -> str:
    """The settings of the training text, without paths of the training machine and without how files were read."""
    data = run.config.data
    left_out = ("tokenizer", "path", "cache_dir", "reader", "buffer_pairs", "bad_rows", "max_tokens")
    known = {key: data[key] for key in data if key not in left_out}
    lines = (escape_markdown(f"{key}: {value}") for key, value in known.items() if value is not None)
    return "\n".join(f"- {line}" for line in lines) or "Not known."
