"""Align the words of given pairs by a run's attention, or score an alignment against gold links."""

from nmt.commands import run_command

if __name__ == "__main__":
    run_command("align")
