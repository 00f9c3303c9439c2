"""Translate lines: files, or standard input to standard output."""

from nmt.commands import run_command

if __name__ == "__main__":
    run_command("translate")
