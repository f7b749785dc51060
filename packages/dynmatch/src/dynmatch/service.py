"""A stream as a service: a snapshot now and then, an append-only log in between, exact recovery after ``kill -9``."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dynmatch import snapshot
from papers_shared.artifacts import append_jsonl, write_json
from papers_shared.errors import InputError

SNAPSHOT = "snapshot.npz"
OPTIONS = "options.json"


class Journal:
    """Remember every update of a stream in a folder.

    A record is appended to the log before its answer is given, so that an answer seen is an update kept. A snapshot
    replaces the log so far; a new log begins whose name carries the number of records before it.

    Parameters
    ----------
    folder
        Made if missing.
    every
        Records between snapshots.
    """

    def __init__(self, folder: Path, every: int = 1000) -> None:
        self.folder, self.every = folder, every
        self.done = 0
        self.since = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot write {folder}: {(error.strerror or str(error)).lower()}") from error

    @property
    def log(self) -> Path:
        """The log that follows the last snapshot."""
        return self.folder / f"log-{self.done - self.since:012d}.jsonl"

    def used(self) -> bool:
        """Tell whether the folder holds an earlier stream."""
        return (self.folder / SNAPSHOT).exists() or any(self.folder.glob("log-*.jsonl"))

    def agree(self, options: dict[str, Any]) -> None:
        """Write down what the stream was begun with, or refuse to continue one that was begun with something else.

        Raises
        ------
        InputError
            Naming the options that differ.
        """
        path = self.folder / OPTIONS
        if not self.used() or not path.exists():
            write_json(path, options)
            return
        before = json.loads(path.read_text())
        differ = sorted(name for name in before.keys() | options.keys() if before.get(name) != options.get(name))
        if differ:
            was = ", ".join(f"{name} {before.get(name)}" for name in differ)
            raise InputError(
                f"{self.folder} holds a stream with other options: {was}", hint="give the same, or a new folder"
            )

    def record(self, value: Any) -> None:
        """Append one record."""
        append_jsonl(self.log, value)
        self.done += 1
        self.since += 1

    def due(self) -> bool:
        """Tell whether a snapshot is due."""
        return self.since >= self.every

    def checkpoint(self, state: Any) -> None:
        """Write a snapshot that stands for all records so far, and drop the logs it covers."""
        old = list(self.folder.glob("log-*.jsonl"))
        snapshot.write(self.folder / SNAPSHOT, {"done": self.done, "state": state})
        self.since = 0
        for path in old:
            path.unlink(missing_ok=True)

    def recover(self, restore: Callable[[Any], None], replay: Callable[[Any], None]) -> int:
        """Bring back the state: ``restore`` the snapshot if there is one, then ``replay`` each later record.

        Returns
        -------
        int
            Records replayed.
        """
        path = self.folder / SNAPSHOT
        self.done = self.since = 0
        if path.exists():
            saved = snapshot.read(path)
            self.done = int(saved["done"])
            restore(saved["state"])
        for old in self.folder.glob("log-*.jsonl"):
            if old != self.log:  # a kill between snapshot and unlink leaves the covered log behind
                old.unlink()
        if self.log.exists():
            data = self.log.read_bytes()
            whole = data[: data.rfind(b"\n") + 1]
            if len(whole) != len(data):  # a kill inside the write leaves a torn line, whose answer nobody has seen
                os.truncate(self.log, len(whole))
            records = [json.loads(line) for line in whole.splitlines()]
            for record in records:
                replay(record)
            self.done += len(records)
            self.since = len(records)
        return self.since
