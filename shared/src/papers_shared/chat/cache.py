"""Answers on disk, one small file each, so that a run killed at any moment loses only the calls in flight."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from papers_shared._json import loads
from papers_shared.artifacts import dumps, write_text
from papers_shared.chat.protocol import Request
from papers_shared.errors import InputError


class ReplyCache:
    """A folder of answers, named by the key of their request; several processes may share it.

    A file holds the answer, the model, the options and the sample number. The messages are not kept (they can be
    large or confidential) and neither is the API key.

    Parameters
    ----------
    folder
        Made if missing.

    Raises
    ------
    InputError
        The folder cannot be made.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        _make_folder(self.folder)

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.json"

    def get(self, key: str) -> Mapping[str, Any] | None:
        """Return a stored answer, or None; a damaged file counts as none."""
        try:
            raw = loads(self._path(key).read_bytes())
        except (FileNotFoundError, ValueError):
            return None
        except OSError as error:
            raise InputError(f"cannot read the cache {self.folder}: {error.strerror}") from error
        if not isinstance(raw, dict) or not {"choice", "usage", "model"} <= raw.keys():
            return None
        return raw

    def put(self, key: str, request: Request, raw: Mapping[str, Any]) -> None:
        """Store an answer, whole or not at all."""
        path = self._path(key)
        _make_folder(path.parent)
        write_text(path, dumps({"sample": request.sample, "options": request.options, **raw}) + "\n")


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the cache folder {folder}: {error.strerror}") from error
