"""The commands: one module each, and the entry that all of them share.

Importing this package is cheap. A command's own module, and torch with it, is imported after its settings are checked.
"""

from nmt.commands.entry import LogFile, main, run_command

__all__ = ["LogFile", "main", "run_command"]
