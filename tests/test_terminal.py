"""What a command shows in a terminal, and the log that it writes."""

import io
import logging
import os
import sys

import pytest
from omegaconf import OmegaConf

from nmt.commands import entry, terminal
from nmt.commands.entry import LogFile, errors_in_one_line
from tests import commands
from tests.commands import Ended, refused


def test_text_goes_out_as_utf_8_and_only_where_there_is_an_output(monkeypatch, capsys):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="latin-1", newline="\r\n")  # as on Windows
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stdin", None)
    entry._use_utf8()
    print("giáo viên", flush=True)
    assert stream.buffer.getvalue() == "giáo viên\n".encode()
    assert sys.stdin.read() == ""
    sys.stdin.close()
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(SystemExit) as ending, errors_in_one_line("train"):
        entry._use_utf8()
    refused(Ended(ending.value.code, *capsys.readouterr()), "standard output is closed")


def test_the_log_of_a_run_waits_for_its_configuration(tmp_path):
    file = LogFile(tmp_path / "train.log")
    for number in range(3):
        file.emit(logging.LogRecord("name", logging.INFO, "path", 1, f"message {number}", None, None))
        if number == 1:
            assert not list(tmp_path.iterdir())
            (tmp_path / "config.yaml").touch()
    file.close()
    assert (tmp_path / "train.log").read_text() == "message 0\nmessage 1\nmessage 2\n"


def test_a_terminal_shows_control_characters_and_a_file_gets_them(monkeypatch, tmp_path):
    """A vocabulary may hold them, and so may a translation."""
    pty = pytest.importorskip("pty")
    text = "\x1b]0;owned\x07 nhà\t\x9b2J\r|"
    theirs, ours = pty.openpty()
    try:
        with open(ours, "w", encoding="utf-8") as stdout, monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", stdout)
            terminal.escape_controls()
            print(text)
            sys.stdout.flush()
        assert os.read(theirs, 99).decode() == "\\x1b]0;owned\\x07 nhà\t\\x9b2J\\r|\r\n"
    finally:
        os.close(theirs)
    with (tmp_path / "file").open("w", encoding="utf-8") as stdout, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stdout)
        terminal.escape_controls()
        print(text, end="")
    assert (tmp_path / "file").read_bytes().decode() == text


def test_a_message_of_the_log_is_one_line_that_a_terminal_shows():
    record = logging.LogRecord("nmt", logging.WARNING, "", 0, "skipped: %s", ("\x1b[2J\na\x9b",), None)
    assert terminal.OneLine().format(record) == "skipped: \\x1b[2J a\\x9b"
    settings = OmegaConf.load(commands.CONFIGS / "hydra" / "job_logging" / "stderr.yaml")
    assert settings.formatters.plain["class"] == f"{terminal.OneLine.__module__}.OneLine"
