"""The commands, a module per command, and their common entry, which checks settings before it imports a module."""

from nmt.commands.entry import main, run_command
