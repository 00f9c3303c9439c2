"""Report the faults of parallel text, and write a clean copy of it."""

from nmt.commands import run_command

if __name__ == "__main__":
    run_command("prepare")
