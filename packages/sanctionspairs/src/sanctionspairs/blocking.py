"""Candidate pairs in a list: which of n(n-1)/2 pairs are worth a matcher's time.

Records share a key when they share a transliterated name token, its sound, an identifier, the beginning of a name with
the birth year, a phone or e-mail, or another record that both refer to. A key that is too common is not dropped: its
records are joined by a second common key, and what is still too many, or has no second key, by neighbours in the
order of names.
"""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from followthemoney import EntityProxy
from followthemoney.types import registry
from jaxtyping import Float, Int
from scipy import sparse

from papers_shared.artifacts import atomic_path
from sanctionspairs.errors import SanctionsPairsError
from sanctionspairs.records import common_schema
from sanctionspairs.text import bare_identifier, sound, tokens

_ROWS = 2_000
_NAMES = ("name", "alias", "previousName", "weakAlias", "full")


class Quality(NamedTuple):
    """How good candidates are.

    Attributes
    ----------
    completeness
        Share of the true pairs that are candidates.
    reduction
        Share of all pairs that are spared.
    candidates
        How many there are.
    """

    completeness: float
    reduction: float
    candidates: int


@dataclass
class BlockingStats:
    """What was done about common keys.

    Attributes
    ----------
    keys
        Keys that at least two records share.
    split
        Keys with more than ``max_block`` records, joined by second keys.
    windowed
        Keys (or second keys) still too common, cut into neighbourhoods of names.
    largest
        Records of the most common key.
    """

    keys: int = 0
    split: int = 0
    windowed: int = 0
    largest: int = 0


def keys_of(entity: EntityProxy) -> list[str]:
    """Return a record's keys, sorted; the letter before the colon says of which kind."""
    found: set[str] = set()
    years = {date[:4] for date in entity.get("birthDate", quiet=True) if len(date) >= 4}
    for prop in _NAMES:
        for name in entity.get(prop, quiet=True):
            for word in tokens(name):
                if len(word) < 2 and not word.isdigit():
                    continue
                found.add(f"t:{word}")
                if len(word) > 2 and (heard := sound(word)):
                    found.add(f"s:{heard}")
                found.update(f"y:{word[:3]}:{year}" for year in years)
    found.update(
        f"i:{bare}" for v in entity.get_type_values(registry.identifier) if len(bare := bare_identifier(v)) > 3
    )
    found.update(f"p:{value}" for kind in (registry.phone, registry.email) for value in entity.get_type_values(kind))
    found.update(f"r:{value}" for value in entity.get_type_values(registry.entity, matchable=True))
    return sorted(found)


def candidates(
    entities: Sequence[EntityProxy],
    k: int = 50,
    max_block: int = 200,
    *,
    stats: BlockingStats | None = None,
) -> Int[np.ndarray, "m 2"]:
    r"""Return the pairs of records that may be one entity.

    The weight of a pair is the summed inverse document frequency :math:`\log(n / df)` of the blocks it shares; for each
    record the ``k`` heaviest partners are kept.

    Parameters
    ----------
    entities
        The list.
    k
        Partners kept per record; a pair is kept if it is among those of either side.
    max_block
        Most records that are compared because of one block.
    stats
        Filled with what happened to common keys.

    Returns
    -------
    ndarray
        int64 ``(m, 2)``: positions ``i < j``, sorted. Pairs whose schemata exclude each other are left out.

    Raises
    ------
    SanctionsPairsError
        ``k`` or ``max_block`` is too small.

    Notes
    -----
    Time and memory grow as n * keys * max_block at worst; records are worked off in slices.
    """
    if k < 1 or max_block < 2:
        raise SanctionsPairsError(f"k {k} must be at least 1 and max_block {max_block} at least 2")
    n = len(entities)
    blocks, sizes = make_blocks(entities, max_block, stats)
    if n < 2 or not blocks:
        return np.empty((0, 2), dtype=np.int64)
    columns = np.repeat(np.arange(len(blocks)), [len(members) for members in blocks])
    rows = np.concatenate([np.asarray(members, dtype=np.int64) for members in blocks])
    weight = idf(sizes, n)
    member = sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=(n, len(blocks)))
    weighted = sparse.csr_array(member.T).multiply(weight[:, None]).tocsr()
    schemas, schema_of = _schemas(entities)
    found = []
    for start in range(0, n, _ROWS):
        shared = (member[start : start + _ROWS] @ weighted).tocsr()
        for row in range(shared.shape[0]):
            here = slice(shared.indptr[row], shared.indptr[row + 1])
            mine, heavy = shared.indices[here].astype(np.int64), shared.data[here]
            allowed = (mine != start + row) & schemas[schema_of[start + row], schema_of[mine]]
            mine, heavy = mine[allowed], heavy[allowed]
            if len(mine) > k:
                mine = mine[np.lexsort((mine, -np.round(heavy, 9)))[:k]]
            if len(mine):
                found.append(np.stack([np.minimum(mine, start + row), np.maximum(mine, start + row)], axis=1))
    if not found:
        return np.empty((0, 2), dtype=np.int64)
    codes = np.unique(np.concatenate([pairs[:, 0] * n + pairs[:, 1] for pairs in found]))
    return np.stack([codes // n, codes % n], axis=1)


def make_blocks(
    entities: Sequence[EntityProxy], max_block: int, stats: BlockingStats | None = None
) -> tuple[list[list[int]], list[int]]:
    """Return blocks of at most ``max_block`` records, and for each the number of records its key stands for."""
    stats = stats if stats is not None else BlockingStats()
    by_key: dict[str, list[int]] = defaultdict(list)
    for number, entity in enumerate(entities):
        for key in keys_of(entity):
            by_key[key].append(number)
    blocks: list[list[int]] = []
    sizes: list[int] = []
    common: dict[str, list[int]] = {}
    for key, members in by_key.items():
        if len(members) < 2:
            continue
        stats.keys += 1
        stats.largest = max(stats.largest, len(members))
        if len(members) <= max_block:
            blocks.append(members)
            sizes.append(len(members))
        else:
            common[key] = members
    stats.split = len(common)
    for members, size in _split(entities, common, max_block, stats):
        blocks.append(members)
        sizes.append(size)
    return blocks, sizes


def _split(
    entities: Sequence[EntityProxy], common: dict[str, list[int]], max_block: int, stats: BlockingStats
) -> Iterator[tuple[list[int], int]]:
    """Join records of a common key by a second common one; rarer second keys are blocks of their own already."""
    of: dict[int, list[str]] = defaultdict(list)
    for key, members in common.items():
        for number in members:
            of[number].append(key)
    joint: dict[tuple[str, str], list[int]] = defaultdict(list)
    alone: dict[str, list[int]] = defaultdict(list)
    for number, keys in of.items():
        for pair in combinations(sorted(keys), 2):
            joint[pair].append(number)
        if len(keys) == 1:
            alone[keys[0]].append(number)
    order: dict[int, str] = {}
    for members in joint.values():
        if 2 <= len(members) <= max_block:
            yield members, len(members)
        elif len(members) > max_block:
            stats.windowed += 1
            yield from ((part, len(members)) for part in _windows(entities, members, max_block, order))
    for key in alone:
        # A record without a second common key could meet any other of this key: take its neighbours by name.
        stats.windowed += 1
        yield from ((part, len(common[key])) for part in _windows(entities, common[key], max_block, order))


def _windows(
    entities: Sequence[EntityProxy], members: list[int], size: int, order: dict[int, str]
) -> Iterator[list[int]]:
    """Cut records, in the order of their names, into runs of ``size`` that overlap by half."""
    for number in members:
        if number not in order:
            order[number] = " ".join(
                sorted(w for name in entities[number].get("name", quiet=True)[:1] for w in tokens(name))
            )
    ranked = sorted(members, key=lambda number: (order[number], number))
    step = max(1, size // 2)
    for start in range(0, max(1, len(ranked) - step), step):
        yield ranked[start : start + size]


def _schemas(entities: Sequence[EntityProxy]) -> tuple[Any, Int[np.ndarray, " n"]]:
    names = {entity.schema.name: entity for entity in entities}
    index = {name: place for place, name in enumerate(names)}
    samples = list(names.values())
    fit = np.array([[common_schema(a, b) is not None for b in samples] for a in samples], dtype=bool)
    return fit, np.array([index[entity.schema.name] for entity in entities], dtype=np.int64)


def true_pairs(truth: Sequence[Any]) -> Int[np.ndarray, "m 2"]:
    """Return all pairs of positions with equal truth, ``i < j``."""
    groups: dict[Any, list[int]] = defaultdict(list)
    for number, name in enumerate(truth):
        groups[name].append(number)
    pairs = [pair for members in groups.values() for pair in combinations(members, 2)]
    return np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)


def quality(cand: Int[np.ndarray, "m 2"], truth: Sequence[Any]) -> Quality:
    """Measure candidates against the truth.

    Parameters
    ----------
    cand
        int64 ``(m, 2)``, ``i < j``.
    truth
        ``(n,)`` which entity each record describes.
    """
    n = len(truth)
    wanted = true_pairs(truth)
    hit = np.isin(wanted[:, 0] * n + wanted[:, 1], cand[:, 0] * n + cand[:, 1]).sum()
    every = n * (n - 1) / 2
    return Quality(float(hit / max(1, len(wanted))), float(1 - len(cand) / max(1.0, every)), len(cand))


def write_partitions(
    entities: Iterable[EntityProxy], folder: Path, parts: int = 64, *, rows: int = 200_000
) -> list[Path]:
    """Write ``(key, id, entity)`` rows as parquet files by hash of the key, for joins beyond one machine.

    Each key is wholly in one file, so that files can be blocked independently; memory holds ``rows`` rows.

    Parameters
    ----------
    entities
        A stream; read once.
    folder
        Made if missing; files are ``part-0000.parquet`` and so on.
    parts
        Number of files.
    rows
        Rows kept in memory before they are appended to their files.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    schema = pa.schema([("key", pa.string()), ("id", pa.string()), ("entity", pa.string())])
    paths = [folder / f"part-{part:04d}.parquet" for part in range(parts)]
    with ExitStack() as stack:
        temporary = [stack.enter_context(atomic_path(path)) for path in paths]
        writers = [stack.enter_context(pq.ParquetWriter(path, schema)) for path in temporary]
        waiting: list[list[tuple[str, str, str]]] = [[] for _ in paths]
        count = 0

        def flush() -> None:
            for writer, held in zip(writers, waiting, strict=True):
                if held:
                    columns = [pa.array(column) for column in zip(*held, strict=True)]
                    writer.write_table(pa.Table.from_arrays(columns, schema=schema))
                    held.clear()

        for entity in entities:
            text = json.dumps(entity.to_dict(), ensure_ascii=False)
            for key in keys_of(entity):
                waiting[zlib.crc32(key.encode()) % parts].append((key, str(entity.id), text))
                count += 1
            if count >= rows:
                flush()
                count = 0
        flush()
    return paths


def idf(sizes: Sequence[int], n: int) -> Float[np.ndarray, " b"]:
    r"""Return :math:`\\log(n / df)` of blocks; a hair above 0 for a key that every record has."""
    return np.log(n / np.asarray(sizes, dtype=np.float64)) + 1e-9
