"""The embedded default, made on the spot from a seed, and the reader of a column of numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from jaxtyping import Float

from papers_shared.errors import InputError


def default(seed: int = 0, offset: float = 1e6, count: int = 10_000) -> Float[np.ndarray, " n"]:
    """Return readings of a sensor far from zero: ``offset`` plus unit normal noise."""
    return offset + np.random.default_rng(seed).standard_normal(count)


def read_column(path: Path) -> Float[np.ndarray, " n"]:
    """Read one number per line; blank lines and ``#`` comments are skipped.

    Raises
    ------
    InputError
        When the file is missing, holds no number, or a line is not a finite number.
    """
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}", hint="give a text file with one number per line") from error
    values = []
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not np.isfinite(value):
            raise InputError(f"{path}, line {number}: {text!r} is not a finite number")
        values.append(value)
    if not values:
        raise InputError(f"{path} holds no number", hint="give a text file with one number per line")
    return np.array(values)
