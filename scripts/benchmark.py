"""Measure how fast models train and decode, and what memory they take."""

from nmt.commands import run_command

if __name__ == "__main__":
    run_command("benchmark")
