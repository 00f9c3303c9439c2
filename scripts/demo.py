"""Play with trained runs in a browser: other words, held attention, runs side by side, attention over time."""

from nmt.commands import run_command

if __name__ == "__main__":
    run_command("demo")
