"""The validations of a run, in its `validations.json`: step, scores, and the training loss that was logged last."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from nmt.atomic import json_text, read_at_most, write_together
from nmt.errors import UserError


def read_validations(run_dir: Path) -> list[dict[str, Any]]:
    """The validations in order of steps; none without a file. Raises UserError naming a broken file."""
    file = run_dir / "validations.json"
    try:
        content = read_at_most(file, 2**24) if file.exists() else b"[]"
        rows = TypeAdapter(list[dict[str, float | None]]).validate_json(content, strict=True)
        return sorted(({**row, "step": int(row["step"] or 0)} for row in rows), key=lambda row: row["step"])
    except (ValueError, KeyError, OverflowError) as error:
        raise UserError(f"{file} is broken: remove it") from error


def note_validation(run_dir: Path, row: Mapping[str, float]) -> None:
    """Append a validation. A resumed run repeats steps after its checkpoint: their first rows are dropped."""
    earlier = [each for each in read_validations(run_dir) if each["step"] < row["step"]]
    write_together({run_dir / "validations.json": json_text([*earlier, dict(row)])})
