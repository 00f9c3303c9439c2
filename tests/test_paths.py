"""Run directories: found, claimed and written to."""

import os
from pathlib import Path

import pytest

from nmt.errors import UserError
from nmt.run.paths import claim_directory, newest_run, write_atomically


def test_two_runs_of_one_second_have_directories_of_their_own(tmp_path):
    place = tmp_path / "logs" / "name" / "second"
    with claim_directory(place, may_rename=True) as first, claim_directory(place, may_rename=True) as second:
        (first / "config.yaml").touch()
        assert (first, second) == (place, place.with_name("second_2"))
        assert second.is_dir()
    assert [each.name for each in place.parent.iterdir()] == ["second"]  # nothing was written in the other


def test_a_run_that_leaves_nothing_leaves_no_folder_but_one_that_was_there(tmp_path):
    (tmp_path / "mine").mkdir()
    with pytest.raises(UserError), claim_directory(tmp_path / "mine" / "a" / "b", may_rename=False):
        raise UserError("refused")
    assert [each.name for each in tmp_path.rglob("*")] == ["mine"]
    with claim_directory(tmp_path / "mine", may_rename=False):
        pass
    assert (tmp_path / "mine").is_dir()


def test_the_newest_run_is_one_that_was_scored(tmp_path):
    with pytest.raises(UserError, match="run is required"):
        newest_run(tmp_path)
    for number, name in enumerate(("old", "new", "unfinished", "evaluation")):
        if name != "evaluation":
            (tmp_path / name / "checkpoints").mkdir(parents=True)
        if name != "unfinished":
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / "metrics.json").touch()
            os.utime(tmp_path / name / "metrics.json", (number, number))
    assert newest_run(tmp_path) == tmp_path / "new"


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="open files have no names here")
def test_a_link_stays_a_link_and_an_open_file_stays_open(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old\n")
    link.symlink_to(target)
    write_atomically(link, "new\n")
    assert link.is_symlink()
    assert target.read_text() == "new\n"
    with target.open("a") as stream:
        descriptor = tmp_path / "stdout"
        descriptor.symlink_to(f"/proc/self/fd/{stream.fileno()}")
        write_atomically(descriptor, "more\n")
        assert descriptor.is_symlink()
    assert target.read_text() == "new\nmore\n"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link", "stdout", "target"]
