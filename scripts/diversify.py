"""Make more training text of the same pairs, by translating both sides with trained runs."""

from nmt.commands import run_command

if __name__ == "__main__":
    run_command("diversify")
