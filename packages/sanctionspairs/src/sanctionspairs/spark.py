"""Matching beyond one machine: an adapter for Spark's ``mapInPandas``, and for any engine that moves pandas frames."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd

from sanctionspairs.errors import PairFormatError, SanctionsPairsError
from sanctionspairs.matchers import get
from sanctionspairs.records import Pair, entity

SCHEMA = "left_id string, right_id string, score double"
"""Of the rows that come out, as Spark writes it."""


def map_in_pandas(matcher: str, **settings: Any) -> Callable[[Iterator[pd.DataFrame]], Iterator[pd.DataFrame]]:
    """Return a function for ``pairs.mapInPandas(function, SCHEMA)`` on rows ``left``, ``right`` of JSON text.

    The matcher is made where the function runs, so that nothing but its name travels.

    Examples
    --------
    >>> scored = pairs.mapInPandas(map_in_pandas("regression-v1"), schema=SCHEMA)
    """

    def score(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """Score the pairs of each frame with one matcher."""
        made = get(matcher, **settings)
        for frame in frames:
            pairs = [
                _pair(number, left, right)
                for number, (left, right) in enumerate(zip(frame["left"], frame["right"], strict=True), 1)
            ]
            yield pd.DataFrame(
                {
                    "left_id": [pair.left.id for pair in pairs],
                    "right_id": [pair.right.id for pair in pairs],
                    "score": made.score(pairs),
                }
            )

    return score


def _pair(number: int, left: str, right: str) -> Pair:
    try:
        return Pair(entity(json.loads(left)), entity(json.loads(right)))
    except PairFormatError:
        raise
    except SanctionsPairsError as error:
        raise PairFormatError(number, error.message, error.hint) from error
    except ValueError as error:
        raise PairFormatError(number, f"not JSON: {error}") from error
