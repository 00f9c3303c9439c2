"""The one exception that means: the user can mend this."""


class UserError(ValueError):
    """A fault in what the user gave (a file, a line, a setting), said in one line with what to do.

    Commands print it without a traceback and exit with status 1.
    """
