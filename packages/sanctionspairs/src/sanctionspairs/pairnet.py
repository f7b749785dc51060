"""PairNet: a small learned matcher over hashed 3-gram embeddings; scoring needs NumPy only."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import as_file
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from papers_shared.artifacts import write_npz
from sanctionspairs.data import ASSETS
from sanctionspairs.errors import SanctionsPairsError
from sanctionspairs.features import FEATURES, Encoder
from sanctionspairs.pairnet_values import BUCKETS, GROUPS, Encoded, encode
from sanctionspairs.records import Pair
from sanctionspairs.regression import incompatible

DIMENSION, HIDDEN = 48, 128
WEIGHTS = "pairnet.npz"
SHIPPED_SEED = 42
"""The embedded weights were fitted on the train part of this seed's entity-disjoint split of SanctionsSim."""
_CHUNK = 10_000


class PairNet:
    r"""Aligns values of two records property by property and lets a small network weigh what agrees.

    A value is the unit mean of its 3-gram embeddings, in its own script and transliterated. For each group of
    properties the alignment is :math:`\max_{a, b} \langle e_a, e_b \rangle` over the pairs of values; with flags for
    "both filled" and "some value equal" and the production model's 18 features it enters a network of two hidden layers
    of 128, whose output is calibrated by isotonic regression.

    Parameters
    ----------
    weights
        Arrays as `fit` makes them; None is untrained.
    """

    name = "pairnet"

    def __init__(self, weights: dict[str, Any] | None = None) -> None:
        self.weights = weights
        self._encoder = Encoder()

    @property
    def trained(self) -> bool:
        """Whether there are weights."""
        return self.weights is not None

    @classmethod
    def shipped(cls, path: str | Path | None = None, untrained: bool = False) -> PairNet:
        """Return the model that ships with the package, or one of a file, or an untrained one to fit.

        Raises
        ------
        SanctionsPairsError
            The file is missing or holds something else.
        """
        if untrained:
            return cls()
        if path is not None:
            return cls(_load(Path(path)))
        with as_file(ASSETS / WEIGHTS) as file:
            return cls(_load(file))

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the weights as ``.npz``."""
        return write_npz(path, self._need(), force=force)

    def _need(self) -> dict[str, Any]:
        if self.weights is None:
            raise SanctionsPairsError("pairnet is not trained", "call fit(pairs) or use the shipped weights")
        return self.weights

    def fit(self, pairs: Sequence[Pair], **settings: Any) -> PairNet:
        """Train on judged pairs; needs torch. Settings are those of `pairnet_train.train`; returns itself.

        Raises
        ------
        SanctionsPairsError
            torch is not installed.
        ThresholdError
            The pairs are all of one judgement.
        """
        from sanctionspairs.pairnet_train import train

        self.weights = train(pairs, **settings)
        return self

    def score(self, pairs: Sequence[Pair]) -> Float[np.ndarray, " n"]:
        """Return the calibrated probability that each pair is one entity."""
        self._need()
        found = [np.empty(0)]
        for start in range(0, len(pairs), _CHUNK):
            chunk = pairs[start : start + _CHUNK]
            scores = self.calibrate(self.logits(encode(chunk, self._encoder)))
            scores[incompatible(chunk)] = 0.0
            found.append(scores)
        return np.concatenate(found)

    def logits(self, encoded: Encoded) -> Float[np.ndarray, " n"]:
        """Return the network's output before calibration."""
        w = self._need()
        hidden = self.inputs(encoded)
        for layer in ("1", "2"):
            hidden = np.maximum(hidden @ w[f"w{layer}"] + w[f"b{layer}"], 0.0)
        return (hidden @ w["w3"] + w["b3"])[:, 0].astype(np.float64)

    def inputs(self, encoded: Encoded) -> Float[np.ndarray, "n i"]:
        """Return what enters the network: alignments, flags, standardised features."""
        w = self._need()
        vectors = value_vectors(w["embedding"], encoded)
        n = len(encoded.features)
        aligned = np.zeros(n * len(GROUPS), dtype=np.float32)
        cosine = np.einsum("cd,cd->c", vectors[encoded.left], vectors[encoded.right])
        np.maximum.at(aligned, encoded.slot, cosine)
        standard = (encoded.features - w["mean"]) / w["scale"]
        return np.concatenate([aligned.reshape(n, -1), encoded.flags, standard.astype(np.float32)], axis=1)

    def calibrate(self, logits: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Map logits to probabilities by the fitted centered isotonic regression."""
        w = self._need()
        return np.interp(logits, w["iso_x"], w["iso_y"]).astype(np.float64)

    def explain(self, pair: Pair) -> dict[str, float]:
        """Return how much the score falls when one group of properties, or one feature, is taken as absent."""
        w = self._need()
        encoded = encode([pair], self._encoder)
        row = self.inputs(encoded)
        groups = len(GROUPS)
        rows = [row[0]]
        for index in range(groups):
            without = row[0].copy()
            without[[index, groups + index, 2 * groups + index]] = 0.0
            rows.append(without)
        for index in range(len(FEATURES)):
            without = row[0].copy()
            without[3 * groups + index] = -w["mean"][index] / w["scale"][index]
            rows.append(without)
        hidden = np.stack(rows)
        for layer in ("1", "2"):
            hidden = np.maximum(hidden @ w[f"w{layer}"] + w[f"b{layer}"], 0.0)
        out = (hidden @ w["w3"] + w["b3"])[:, 0].astype(np.float64)
        effect = out[0] - out[1:]
        names = [*GROUPS, *FEATURES]
        used = np.concatenate([encoded.flags[0, :groups] > 0, encoded.features[0] != 0])
        return {name: float(value) for name, value, seen in zip(names, effect, used, strict=True) if seen}


def value_vectors(embedding: Float[np.ndarray, "buckets d"], encoded: Encoded) -> Float[np.ndarray, "v d"]:
    """Return the unit mean of each value's 3-gram rows."""
    if not len(encoded.starts):
        return np.zeros((0, embedding.shape[1]), dtype=np.float32)
    sums = np.add.reduceat(embedding[encoded.grams].astype(np.float32), encoded.starts, axis=0)
    return sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-12)


def _load(path: Path) -> dict[str, Any]:
    try:
        with np.load(path) as file:
            weights = {name: file[name] for name in file.files}
    except (OSError, ValueError) as error:
        raise SanctionsPairsError(f"cannot read pairnet weights {path}: {error}") from error
    if weights.get("embedding", np.empty(0)).shape != (BUCKETS, DIMENSION):
        raise SanctionsPairsError(f"{path} holds no pairnet weights")
    return weights
