"""The production model, in batch, from the weights that nomenklatura ships, and the same features refitted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from nomenklatura.matching import RegressionV1
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from sanctionspairs.errors import SanctionsPairsError, ThresholdError
from sanctionspairs.features import FEATURES, Encoder, swap_address_numbers
from sanctionspairs.records import Pair, decided_by_form

CHUNK = 20_000
"""Pairs encoded at a time, so that memory does not grow with the stream."""
_NAMES = tuple(FEATURES.index(name) for name in ("name_match", "name_token_overlap", "name_levenshtein"))


def incompatible(pairs: Sequence[Pair]) -> Bool[np.ndarray, " n"]:
    """Return which pairs can never be one entity by their schemata; every matcher scores them 0."""
    return np.array([decided_by_form(pair) == "incompatible" for pair in pairs], dtype=bool)


class Regression:
    r"""``regression-v1``: :math:`p = \sigma(b + \sum_k w_k (x_k - \mu_k) / s_k)` over 18 features of names, dates, ids.

    Parameters
    ----------
    symmetric
        Score both orders of a pair and take the larger; they differ in one feature of the library, address_numbers.
    name_floor
        Share of name evidence in (0, 1] below which the score is scaled down, so that an equal birth date alone does
        not carry a pair; a single word that both names share then counts in full. None leaves the model as it is.
    refit
        Start untrained; `fit` trains the same features on other pairs.

    Notes
    -----
    All rows are encoded first and predicted at once: the library's ``compare`` spends most of its time in calls of
    scikit-learn with one row.
    """

    def __init__(self, symmetric: bool = False, name_floor: float | None = None, refit: bool = False) -> None:
        if name_floor is not None and not 0 < name_floor <= 1:
            raise SanctionsPairsError(f"name floor {name_floor} must lie in (0, 1]")
        self.name = "regression-v1-refit" if refit else "regression-v1"
        self.trained = not refit
        self._symmetric = symmetric
        self._floor = name_floor
        self._pipe: Pipeline | None = None if refit else RegressionV1.load()[0]
        self._encoder = Encoder()

    def fit(self, pairs: Sequence[Pair]) -> Regression:
        """Fit scaler and logistic regression on the scored pairs; returns itself.

        Raises
        ------
        ThresholdError
            The pairs are all of one judgement.
        """
        kept = [pair for pair in pairs if pair.scored and decided_by_form(pair) is None]
        labels = np.array([pair.label for pair in kept])
        if len(set(labels.tolist())) < 2:
            raise ThresholdError("the training pairs are all of one judgement")
        self._pipe = make_pipeline(StandardScaler(), LogisticRegression()).fit(self._encoder.encode(kept), labels)
        self.name, self.trained = "regression-v1-refit", True
        return self

    @property
    def pipe(self) -> Pipeline:
        """The fitted scaler and model."""
        if self._pipe is None:
            raise SanctionsPairsError(f"{self.name} is not trained", "call fit(pairs) first")
        return self._pipe

    def score(self, pairs: Sequence[Pair]) -> Float[np.ndarray, " n"]:
        """Return the probability that each pair is one entity, float64 ``(n,)``."""
        return np.concatenate([*self.stream(pairs), np.empty(0)])

    def stream(self, pairs: Iterable[Pair]) -> Iterator[Float[np.ndarray, " chunk"]]:
        """Yield scores chunk by chunk for a stream of pairs too long for memory."""
        source = iter(pairs)
        while chunk := list(islice(source, CHUNK)):
            rows = self._encoder.encode(chunk)
            scores = self._predict(rows)
            if self._symmetric:
                scores = np.maximum(scores, self._predict(swap_address_numbers(self._encoder, chunk, rows)))
            if self._floor is not None:
                scores = self._with_floor(chunk, rows, scores)
            scores[incompatible(chunk)] = 0.0
            yield scores

    def _predict(self, rows: Float[np.ndarray, "n 18"]) -> Float[np.ndarray, " n"]:
        return self.pipe.predict_proba(rows)[:, 1].astype(np.float64)

    def _with_floor(
        self, pairs: Sequence[Pair], rows: Float[np.ndarray, "n 18"], scores: Float[np.ndarray, " n"]
    ) -> Float[np.ndarray, " n"]:
        """Judge names without the library's penalty for one word, and scale scores by missing name evidence."""
        assert self._floor is not None
        rows = rows.copy()
        named = np.zeros(len(pairs), dtype=bool)
        for number, pair in enumerate(pairs):
            left, right = self._encoder.profile(pair.left), self._encoder.profile(pair.right)
            named[number] = bool(left.fingerprints and right.fingerprints)
            if min(len(left.name_tokens), len(right.name_tokens)) == 1:
                rows[number, _NAMES[1]] *= 2
        scores = np.where(named, self._predict(rows), scores)
        evidence = rows[:, _NAMES].max(axis=1)
        return np.where(named, scores * np.minimum(1.0, evidence / self._floor), scores)

    def explain(self, pair: Pair) -> dict[str, float]:
        """Return what each feature adds to the log-odds, :math:`w_k z_k`, and the intercept; they sum to the logit."""
        row = self._encoder.encode([pair])
        scaler, linear = self.pipe[0], self.pipe[-1]
        parts = linear.coef_[0] * ((row[0] - scaler.mean_) / scaler.scale_)
        shown: dict[str, Any] = dict(zip(FEATURES, parts.tolist(), strict=True))
        return shown | {"intercept": float(linear.intercept_[0])}
