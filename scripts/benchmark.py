"""Measure the speed and memory of training and decoding."""

from nmt.commands import run_command

if __name__ == "__main__":
    run_command("benchmark")
