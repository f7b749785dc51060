"""Matchers by name: constant, fuzzy, the production models of nomenklatura, a learned one, a language model, a cascade.

Every matcher scores pairs in [0, 1]; the decision is ``score >= threshold``, with the threshold tuned on dev.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import SequenceMatcher
from typing import Any, Protocol, runtime_checkable

import numpy as np
from followthemoney import EntityProxy
from jaxtyping import Float
from nomenklatura.matching import get_algorithm

from sanctionspairs.errors import SanctionsPairsError
from sanctionspairs.records import Pair
from sanctionspairs.regression import Regression, incompatible

LIBRARY = ("logic-v2", "name-qualified", "er-unstable", "ofac")
"""Algorithms of nomenklatura that are called pair by pair."""


@runtime_checkable
class Matcher(Protocol):
    """What every matcher can do.

    Attributes
    ----------
    name : str
        For tables.
    """

    name: str

    @property
    def trained(self) -> bool:
        """Whether it can score without `fit`."""

    def score(self, pairs: Sequence[Pair]) -> Float[np.ndarray, " n"]:
        """Return float64 ``(n,)`` in [0, 1], higher for one entity; NaN where the matcher gave no answer."""

    def explain(self, pair: Pair) -> dict[str, float]:
        """Return what the score is made of."""

    def fit(self, pairs: Sequence[Pair]) -> Matcher:
        """Learn from judged pairs, where there is something to learn; returns itself."""


class Always:
    """Says yes to everything: what any F1 must be compared with, since most judged pairs are positive."""

    name, trained = "always", True

    def score(self, pairs: Sequence[Pair]) -> Float[np.ndarray, " n"]:
        """Return ones."""
        return np.ones(len(pairs))

    def explain(self, pair: Pair) -> dict[str, float]:
        """Return the constant."""
        return {"constant": 1.0}

    def fit(self, pairs: Sequence[Pair]) -> Always:
        """Nothing to learn."""
        return self


class Fuzzy:
    r"""The paper's hand-made baseline.

    .. math:: s = \min(1, 0.7 \max_{a, b} r(a, b) + 0.1 [\text{countries meet}] + 0.2 [\text{same birth date}])

    with :math:`r` difflib's ratio of lower-cased names with their words sorted, over ``name`` only (no aliases), and
    0.1 instead of 0.2 if only the birth year is equal.
    """

    name, trained = "fuzzy", True

    def score(self, pairs: Sequence[Pair]) -> Float[np.ndarray, " n"]:
        """Return the score of each pair."""
        scores = np.array([min(1.0, sum(self.explain(pair).values())) for pair in pairs], dtype=np.float64)
        scores[incompatible(pairs)] = 0.0
        return scores

    def explain(self, pair: Pair) -> dict[str, float]:
        """Return the three addends."""
        return {
            "name": 0.7 * _name_ratio(pair.left, pair.right),
            "country": 0.1 if _countries(pair.left) & _countries(pair.right) else 0.0,
            "birthDate": _birth_bonus(pair.left, pair.right),
        }

    def fit(self, pairs: Sequence[Pair]) -> Fuzzy:
        """Nothing to learn; the threshold is tuned outside."""
        return self


def _name_ratio(left: EntityProxy, right: EntityProxy) -> float:
    best = 0.0
    for a in {" ".join(sorted(name.lower().split())) for name in left.get("name", quiet=True)}:
        for b in {" ".join(sorted(name.lower().split())) for name in right.get("name", quiet=True)}:
            if a == b:
                return 1.0
            match = SequenceMatcher(None, a, b)
            # Both bounds are cheap and never below the ratio itself.
            if match.real_quick_ratio() > best and match.quick_ratio() > best:
                best = max(best, match.ratio())
    return best


def _countries(entity: EntityProxy) -> set[str]:
    return {*entity.get("country", quiet=True), *entity.get("nationality", quiet=True)}


def _birth_bonus(left: EntityProxy, right: EntityProxy) -> float:
    a, b = set(left.get("birthDate", quiet=True)), set(right.get("birthDate", quiet=True))
    if a & b:
        return 0.2
    return 0.1 if {date[:4] for date in a} & {date[:4] for date in b} else 0.0


class Library:
    """An algorithm of nomenklatura, called for each pair with its default settings.

    Parameters
    ----------
    name
        ``logic-v2``, ``name-qualified``, ``er-unstable`` or ``ofac`` (names as OFAC's own search compares them).
    """

    trained = True

    def __init__(self, name: str) -> None:
        found = get_algorithm(name)
        if found is None:
            raise SanctionsPairsError(f"nomenklatura has no algorithm {name!r}")
        self.name = name
        self._algorithm = found
        self._config = found.default_config()

    def score(self, pairs: Sequence[Pair]) -> Float[np.ndarray, " n"]:
        """Return the library's score of each pair."""
        scores = np.zeros(len(pairs))
        for number in np.flatnonzero(~incompatible(pairs)):
            pair = pairs[number]
            scores[number] = self._algorithm.compare(pair.left, pair.right, self._config).score
        return scores

    def explain(self, pair: Pair) -> dict[str, float]:
        """Return the library's own explanation: the features that spoke, with their scores."""
        found = self._algorithm.compare(pair.left, pair.right, self._config).explanations
        return {name: float(result.score) for name, result in found.items()}

    def fit(self, pairs: Sequence[Pair]) -> Library:
        """Nothing to learn; its weights are the library's."""
        return self


def _pairnet(**settings: Any) -> Matcher:
    from sanctionspairs.pairnet import PairNet

    return PairNet.shipped(**settings)


def _llm(**settings: Any) -> Matcher:
    from sanctionspairs.llm import LLMMatcher

    return LLMMatcher(**settings)


def _cascade(**settings: Any) -> Matcher:
    from sanctionspairs.cascade import Cascade

    return Cascade(**settings)


def _splink(**settings: Any) -> Matcher:
    from sanctionspairs.baselines import Splink

    return Splink(**settings)


MATCHERS: dict[str, Callable[..., Matcher]] = {
    "always": Always,
    "fuzzy": Fuzzy,
    "regression-v1": Regression,
    "regression-v1-refit": lambda **settings: Regression(refit=True, **settings),
    **{name: lambda name=name: Library(name) for name in LIBRARY},
    "pairnet": _pairnet,
    "cascade": _cascade,
    "llm": _llm,
    "splink": _splink,
}
"""How each matcher is made, by name."""


def get(name: str, **kw: Any) -> Matcher:
    """Return a matcher by name.

    Parameters
    ----------
    name
        One of `MATCHERS`.
    **kw
        Its settings, for example ``symmetric=True`` of ``regression-v1`` or ``model=...`` of ``llm``.

    Raises
    ------
    SanctionsPairsError
        There is none of this name, or it has no such setting.
    """
    if name not in MATCHERS:
        raise SanctionsPairsError(f"no matcher {name!r}", f"choose one of {', '.join(MATCHERS)}")
    try:
        return MATCHERS[name](**kw)
    except TypeError as error:
        if "unexpected keyword" not in str(error):
            raise
        raise SanctionsPairsError(f"matcher {name!r}: {error}") from error
