"""The one exception for anything the user can put right."""

from __future__ import annotations


class InputError(ValueError):
    """The user's input is wrong, and the message says what to do about it.

    The command line prints it as one line, ``error: message; hint``, without a traceback, and exits with 2.
    A package's own errors for bad input inherit from it.

    Parameters
    ----------
    message
        What is wrong and where: name the file, line, option or value.
    hint
        What to do instead.

    Examples
    --------
    >>> str(InputError("mask.png selects no pixel", hint="paint the part to edit white"))
    'mask.png selects no pixel; paint the part to edit white'
    """

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message
