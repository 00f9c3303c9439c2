"""Compare scored runs: scores with significance, cost, means over seeds, and BLEU by sentence length."""

from nmt.commands import run_command

if __name__ == "__main__":
    run_command("compare")
