"""Measure how fast models train and decode, what memory they take, and where the time goes."""

from nmt.commands import run_command

if __name__ == "__main__":
    run_command("benchmark")
