"""Train a translator or resume a run, keep its best checkpoint, and score its test set."""

from nmt.commands import run_command

if __name__ == "__main__":
    run_command("train")
