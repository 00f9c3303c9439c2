"""A file that is replaced is whole under its name, or as it was."""

import json
from pathlib import Path

import numpy as np
import pytest

from nmt.atomic import json_text, replace_file
from nmt.run.scores import score_lines


def write_half(path: Path) -> None:
    path.write_text("half")
    raise OSError("cut off")


def test_a_file_has_its_new_content_at_the_end_or_its_old_one(tmp_path):
    file = tmp_path / "a.txt"
    with replace_file(file) as new:
        new.write_text("whole")
        assert not file.exists()
    with pytest.raises(OSError, match="cut off"), replace_file(file) as new:
        write_half(new)
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {"a.txt": "whole"}


def test_two_that_write_one_file_do_not_meet(tmp_path):
    with replace_file(tmp_path / "a") as one, replace_file(tmp_path / "a") as other:
        assert one != other
        one.write_text("same")
        other.write_text("same")
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), np.float64("nan")])
def test_json_has_null_for_what_is_no_number(value):
    text = json_text({"é": [1.5, {"score": value}], "n": 3})
    assert json.loads(text, parse_constant=pytest.fail) == {"é": [1.5, {"score": None}], "n": 3}
    assert text.startswith('{\n  "é": [')


def test_a_report_tells_precision_from_recall():
    scores = {"aer": {"score": 0.1, "precision": 0.2, "recall": 0.3}, "num_sentences": 5}
    assert score_lines(scores) == "AER  0.100  precision 0.200  recall 0.300"
