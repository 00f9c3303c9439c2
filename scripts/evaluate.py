"""Score a trained run on a split of its data, or of other data."""

from nmt.commands import run_command

if __name__ == "__main__":
    run_command("evaluate")
