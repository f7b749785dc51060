"""What the field compares with: splink's Fellegi-Sunter model, nomenklatura's index, splink's rules, all pairs."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from followthemoney import Dataset, EntityProxy, StatementEntity
from followthemoney.types import registry
from jaxtyping import Float, Int
from nomenklatura.blocker import Index
from nomenklatura.resolver import Linker
from nomenklatura.store.memory import MemoryStore

from sanctionspairs.errors import SanctionsPairsError
from sanctionspairs.records import Pair, caption, common_schema
from sanctionspairs.regression import incompatible
from sanctionspairs.text import bare_identifier, tokens


def record_frame(entities: Sequence[EntityProxy], ids: Sequence[str] | None = None) -> pd.DataFrame:
    """Return records as one flat row each, as record linkage libraries want them; missing is None."""
    rows = []
    for number, entity in enumerate(entities):
        words = sorted(tokens(caption(entity))) if caption(entity) != entity.schema.name else []
        identifiers = sorted({bare_identifier(v) for v in entity.get_type_values(registry.identifier)})
        rows.append(
            {
                "unique_id": str(entity.id) if ids is None else ids[number],
                "name": " ".join(words) or None,
                "first_word": words[0] if words else None,
                "birth": _first(entity, "birthDate"),
                "country": next(iter(sorted(entity.get_type_values(registry.country))), None),
                "identifiers": identifiers or None,
                "identifier": identifiers[0] if identifiers else None,
                "address": next(iter(sorted(entity.get_type_values(registry.address))), None) or _first(entity, "full"),
                "holder": _first(entity, "holder"),
                "post": _first(entity, "post"),
                "began": _first(entity, "startDate"),
            }
        )
    frame = pd.DataFrame(rows)
    # A column without any value would otherwise reach DuckDB as integers.
    return frame.astype({name: "string" for name in frame.columns if name != "identifiers"})


def _first(entity: EntityProxy, prop: str) -> str | None:
    values = entity.get(prop, quiet=True)
    return values[0] if values else None


class Splink:
    """Fellegi-Sunter by expectation maximisation in DuckDB, without labels.

    Parameters
    ----------
    seed
        Of the random pairs that estimate agreement by chance.
    max_pairs
        How many of them.
    """

    name = "splink"
    trained = True

    def __init__(self, seed: int = 0, max_pairs: float = 1e6) -> None:
        self.seed, self.max_pairs = seed, max_pairs
        self._settings: dict[str, Any] | None = None

    def fit(self, pairs: Sequence[Pair]) -> Splink:
        """Estimate the model's parameters on the records of these pairs; judgements are not looked at."""
        splink = _splink()
        records = {str(side.id): side for pair in pairs for side in (pair.left, pair.right)}
        frame = record_frame(list(records.values()))
        linker = _linker(splink, frame, self._creator(splink))
        rules = [splink.block_on("name", "birth"), splink.block_on("identifier"), splink.block_on("holder", "post")]
        linker.training.estimate_probability_two_random_records_match(rules, recall=0.6)
        linker.training.estimate_u_using_random_sampling(max_pairs=self.max_pairs, seed=self.seed)
        for columns in (("name",), ("birth",), ("holder",), ("first_word", "country")):
            # EM needs pairs that agree on the rule; persons' records have no holder, offices no name.
            if frame.dropna(subset=list(columns)).duplicated(list(columns)).sum() >= 10:
                linker.training.estimate_parameters_using_expectation_maximisation(splink.block_on(*columns))
        self._settings = linker.misc.save_model_to_json()
        return self

    def score(self, pairs: Sequence[Pair]) -> Float[np.ndarray, " n"]:
        """Return the match probability of each pair; fits on the same records first if nothing was fitted."""
        if self._settings is None:
            self.fit(pairs)
        splink = _splink()
        frames = []
        for side in ("left", "right"):
            frame = record_frame([getattr(pair, side) for pair in pairs], [f"{n}-{side}" for n in range(len(pairs))])
            frames.append(frame.assign(pair_key=np.arange(len(pairs))))
        linker = _linker(splink, pd.concat(frames, ignore_index=True), self._settings)
        found = linker.inference.predict(threshold_match_probability=0.0).as_pandas_dataframe()
        scores = np.zeros(len(pairs))
        place = found["unique_id_l"].str.partition("-")[0].astype(int).to_numpy()
        scores[place] = found["match_probability"].to_numpy()
        scores[incompatible(pairs)] = 0.0
        return scores

    def explain(self, pair: Pair) -> dict[str, float]:
        """Return the probability; splink's waterfall needs its own charts."""
        return {"match probability": float(self.score([pair])[0])}

    def _creator(self, splink: Any) -> Any:
        import splink.comparison_library as cl

        return splink.SettingsCreator(
            link_type="dedupe_only",
            comparisons=[
                cl.JaroWinklerAtThresholds("name", [0.95, 0.88, 0.8]),
                cl.LevenshteinAtThresholds("birth", [1, 6]),
                cl.ExactMatch("country"),
                cl.ArrayIntersectAtSizes("identifiers", [1]),
                cl.JaroWinklerAtThresholds("address", [0.9, 0.8]),
                cl.ExactMatch("holder"),
                cl.ExactMatch("post"),
                cl.LevenshteinAtThresholds("began", [1, 6]),
            ],
            blocking_rules_to_generate_predictions=[splink.block_on("pair_key")],
        )


def _splink() -> Any:
    try:
        import splink
    except ImportError as error:
        raise SanctionsPairsError("the splink baseline needs splink", "install sanctionspairs[peers]") from error
    for name in ("splink", "splink.internals"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return splink


def _linker(splink: Any, frame: pd.DataFrame, settings: Any) -> Any:
    if "pair_key" not in frame:
        frame = frame.assign(pair_key=np.arange(len(frame)))
    api = splink.DuckDBAPI()
    return splink.Linker(api.register(frame), settings, log_level=logging.ERROR)


def splink_candidates(entities: Sequence[EntityProxy]) -> Int[np.ndarray, "m 2"]:
    """Return candidates by splink's usual rules: name, birth date and first word, identifier, holder and post."""
    splink = _splink()
    frame = record_frame(entities, [str(number) for number in range(len(entities))])
    rules = [
        splink.block_on("name"),
        splink.block_on("birth", "first_word"),
        splink.block_on("identifier"),
        splink.block_on("holder", "post"),
        splink.block_on("address"),
    ]
    settings = splink.SettingsCreator(link_type="dedupe_only", blocking_rules_to_generate_predictions=rules)
    api = splink.DuckDBAPI()
    linker = splink.Linker(api.register(frame), settings, log_level=logging.ERROR)
    found = linker.inference.deterministic_link().as_pandas_dataframe()
    left, right = (found[f"unique_id_{side}"].astype(int).to_numpy() for side in "lr")
    return _sorted_pairs(left, right)


def nomenklatura_candidates(entities: Sequence[EntityProxy], max_pairs: int | None = None) -> Int[np.ndarray, "m 2"]:
    """Return candidates from nomenklatura's own index, ranked and cut at ``max_pairs`` (50 a record by default)."""
    dataset = Dataset({"name": "list", "title": "List"})
    store: MemoryStore[Any, Any] = MemoryStore(dataset, Linker({}))
    writer = store.writer()
    for entity in entities:
        writer.add_entity(StatementEntity.from_data(dataset, entity.to_dict()))
    writer.flush()
    place = {str(entity.id): number for number, entity in enumerate(entities)}
    with tempfile.TemporaryDirectory() as folder:
        index = Index(store.default_view(), Path(folder))
        index.build()
        pairs = index.pairs(max_pairs=max_pairs or 50 * len(entities))
        found = [(place[left.id], place[right.id]) for (left, right), _ in pairs]
        index.close()
    both = np.array(found, dtype=np.int64).reshape(-1, 2)
    return _sorted_pairs(both[:, 0], both[:, 1])


def all_pairs(entities: Sequence[EntityProxy]) -> Int[np.ndarray, "m 2"]:
    """Return every pair of compatible records; for a few thousand at most."""
    left, right = np.triu_indices(len(entities), k=1)
    schemas = [entity.schema.name for entity in entities]
    kinds = dict(zip(schemas, entities, strict=True))
    fit = {(a, b): common_schema(x, y) is not None for a, x in kinds.items() for b, y in kinds.items()}
    keep = np.array(
        [fit[schemas[i], schemas[j]] for i, j in zip(left.tolist(), right.tolist(), strict=True)], dtype=bool
    )
    return np.stack([left[keep], right[keep]], axis=1).astype(np.int64)


def _sorted_pairs(left: Int[np.ndarray, " m"], right: Int[np.ndarray, " m"]) -> Int[np.ndarray, "k 2"]:
    pairs = np.stack([np.minimum(left, right), np.maximum(left, right)], axis=1).astype(np.int64)
    return np.unique(pairs, axis=0).reshape(-1, 2)
