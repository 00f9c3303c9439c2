"""`python -m nmt.commands COMMAND …`: the same as `python scripts/COMMAND.py …`."""

from nmt.commands import main

if __name__ == "__main__":
    main()
