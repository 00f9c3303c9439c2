"""Make more training text of the same pairs, by translating both sides with trained runs (Nguyen et al. 2020)."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from nmt.errors import UserError
from nmt.files import new_folder
from nmt.run.building import build
from nmt.run.checks import check_decoding
from nmt.run.data import read_whole, stored_data
from nmt.run.directory import Run


def diversify(cfg: DictConfig) -> None:
    """Write the data of the first run into a new folder, with the pairs of each run's translations added to train.

    A run of the same direction translates the sources, one of the other direction the targets. Pairs that are there
    already are left out.
    """
    decoding = build(cfg.decoding)
    runs = [Run.load(path, device=cfg.device, trusted=cfg.trusted) for path in cfg.runs]
    src, tgt = languages = runs[0].languages or ("", "")
    for run in runs:
        if run.languages is None or {*run.languages} != {src, tgt}:
            raise UserError(
                f"{run.directory} does not translate between {src} and {tgt}, as {runs[0].directory} does"
            )
        check_decoding(decoding, run.translator)
    splits = read_whole(stored_data(runs[0].config.data), trusted=cfg.trusted)
    sources, targets = list(splits["train"]["src"]), list(splits["train"]["tgt"])
    pairs = dict.fromkeys(zip(sources, targets, strict=True))
    print(f"{len(sources):,} pairs, {len(pairs):,} of them different")
    for run in runs:
        forward = run.languages == languages
        found = run.translate(sources if forward else targets, decoding, show_progress=True)
        texts = [each.text for each in found]
        made = zip(sources, texts, strict=True) if forward else zip(texts, targets, strict=True)
        new = dict.fromkeys(pair for pair in made if all(pair) and pair not in pairs)
        print(f"{run.name}: {len(new):,} new pairs of {len(texts):,} translations")
        pairs |= new
    with new_folder(Path(cfg.output)) as folder:
        _write(folder / "train.jsonl", ({src: own, tgt: other} for own, other in pairs))
        for name in splits.keys() - {"train"}:
            rows = ({src: row.pop("src"), tgt: row.pop("tgt"), **row} for row in splits[name])
            _write(folder / f"{name}.jsonl", rows)
    print(f"{cfg.output}: {len(pairs):,} pairs to train on, by data=files data.path={cfg.output}")


def _write(path: Path, rows: Iterator[dict[str, Any]]) -> None:
    path.write_text("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows), "utf-8")


main = diversify
