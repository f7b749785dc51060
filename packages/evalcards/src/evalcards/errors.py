"""What can be wrong with the user's input; all are `papers_shared.errors.InputError`."""

from __future__ import annotations

from papers_shared.errors import InputError

__all__ = ["ImportFailure", "InputError", "SchemaError", "SnapshotExists", "UnitMismatch", "UnknownModel"]


class SchemaError(InputError):
    """A file is not JSON, or not a record of the schema.

    Parameters
    ----------
    path
        The file, or the place inside a record.
    message
        What is wrong.
    line, column
        Where, counted from 1, when the text itself is at fault.
    hint
        What to do.
    """

    def __init__(
        self, path: str, message: str, line: int | None = None, column: int | None = None, hint: str | None = None
    ) -> None:
        where = f"{path}:{line}:{column}" if line is not None else path
        super().__init__(f"{where}: {message}", hint)
        self.path, self.reason, self.line, self.column = path, message, line, column


class ImportFailure(InputError):
    """One result, or one file, that did not become a row; importers collect these instead of raising them.

    Parameters
    ----------
    path
        The file.
    where
        The place inside it, for example ``results.mmlu.acc,none``; empty for the file itself.
    reason
        Why it is not a row.
    rows
        How many source results this failure stands for: 1, or 0 for a file that holds none.
    """

    def __init__(self, path: str, where: str, reason: str, rows: int = 1) -> None:
        place = f"{path}, {where}" if where else path
        super().__init__(f"{place}: {reason}")
        self.path, self.where, self.reason, self.rows = path, where, reason, rows

    def as_mapping(self) -> dict[str, object]:
        """Return the failure as a row of the failure report."""
        return {"path": self.path, "where": self.where, "reason": self.reason, "rows": self.rows}


class UnitMismatch(InputError):
    """Two scores are in different units, so that their difference means nothing."""


class SnapshotExists(InputError):
    """A snapshot of that name is there already; snapshots never change."""


class UnknownModel(InputError):
    """No model, or no benchmark, of that name; the hint names near ones."""
