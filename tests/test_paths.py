"""Run directories: found, claimed and written to."""

import os
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from nmt.atomic import write_together
from nmt.errors import UserError
from nmt.run.paths import check_folders, claim_directory, newest_run, write_atomically


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
@pytest.mark.parametrize("write", [write_atomically, lambda path, text: write_together({path: text})])
def test_a_link_stays_a_link_and_an_open_file_stays_open(write, tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old\n")
    link.symlink_to(target)
    write(link, "new\n")
    assert link.is_symlink()
    assert target.read_text() == "new\n"
    with target.open("a") as stream:
        descriptor = tmp_path / "stdout"
        descriptor.symlink_to(f"/proc/self/fd/{stream.fileno()}")
        write(descriptor, "more\n")
        assert descriptor.is_symlink()
    assert target.read_text() == "new\nmore\n"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link", "stdout", "target"]


def test_a_place_that_cannot_be_written_to_is_refused_before_the_work(tmp_path, monkeypatch):
    (tmp_path / "closed").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "closed" / "file")
    check_folders(OmegaConf.create({"output": str(tmp_path / "link")}), "output")
    monkeypatch.setattr(
        "os.access", lambda path, mode: path != tmp_path / "closed"
    )  # root may write anywhere
    check_folders(OmegaConf.create({"output": str(tmp_path / "open")}), "output")
    for name, kind in (("link", "made"), ("closed", "folders"), ("closed/new/page", "made")):
        with pytest.raises(UserError, match=f"output=.*{name}: .*closed cannot be written to"):
            check_folders(OmegaConf.create({"output": str(tmp_path / name)}), **{kind: ["output"]})
