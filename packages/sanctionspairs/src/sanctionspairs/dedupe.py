"""A whole list, end to end: candidates, scores, clusters, and the pairs that people should look at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from followthemoney import EntityProxy
from jaxtyping import Float, Int
from nomenklatura.judgement import Judgement
from nomenklatura.resolver.edge import Edge

from sanctionspairs.blocking import BlockingStats, candidates
from sanctionspairs.cluster import cluster, log_odds
from sanctionspairs.errors import SanctionsPairsError
from sanctionspairs.matchers import Matcher
from sanctionspairs.records import Pair
from sanctionspairs.review import expected_harm
from sanctionspairs.tags import tags

_SURE = 12.0


@dataclass(frozen=True)
class Deduped:
    """What deduplication found.

    Attributes
    ----------
    pairs
        int64 ``(m, 2)`` candidates, judged pairs included.
    probability
        ``(m,)`` of being one entity; 1 or 0 where a person has judged.
    clusters
        int64 ``(n,)`` entity of each record.
    cannot
        int64 ``(c, 2)`` judged negatives.
    stats
        What blocking did about common keys.
    """

    pairs: Int[np.ndarray, "m 2"]
    probability: Float[np.ndarray, " m"]
    clusters: Int[np.ndarray, " n"]
    cannot: Int[np.ndarray, "c 2"]
    stats: BlockingStats


def dedupe(
    entities: Sequence[EntityProxy],
    matcher: Matcher,
    *,
    cut: float = 0.5,
    method: str = "correlation",
    edges: Sequence[Edge] = (),
    k: int = 50,
    max_block: int = 200,
    done: Callable[[int], None] = lambda pairs: None,
) -> Deduped:
    """Find which records of a list are one entity.

    Parameters
    ----------
    entities
        The list; ids are unique.
    matcher
        Scores candidates; calibrated scores cluster best.
    cut
        Probability that counts as no evidence either way; tune it on judged pairs.
    method
        See `cluster.cluster`.
    edges
        Judged pairs: positives join, negatives keep apart whatever the scores say.
    k, max_block
        See `blocking.candidates`.
    done
        Called with the number of pairs just scored.

    Raises
    ------
    SanctionsPairsError
        Two records have one id.
    """
    place: dict[str, int] = {}
    for number, entity in enumerate(entities):
        if str(entity.id) in place:
            raise SanctionsPairsError(f"two records have the id {entity.id!r}", "ids must be unique in a list")
        place[str(entity.id)] = number
    stats = BlockingStats()
    pairs = candidates(entities, k, max_block, stats=stats)
    scores = [np.empty(0)]
    for start in range(0, len(pairs), 5000):
        chunk = [Pair(entities[i], entities[j]) for i, j in pairs[start : start + 5000].tolist()]
        scores.append(np.nan_to_num(matcher.score(chunk), nan=0.5))
        done(len(chunk))
    probability = np.concatenate(scores)
    judged = _judged(edges, place)
    pairs, probability = _with_judged(pairs, probability, judged, len(entities))
    shift = float(log_odds(np.array([cut]))[0])
    weight = np.clip(log_odds(probability) - shift, -_SURE, _SURE)
    weight = np.where(probability == 1.0, 10 * _SURE, weight)  # a person's word outweighs scores
    apart = np.array([pair for pair, yes in judged.items() if not yes], dtype=np.int64).reshape(-1, 2)
    return Deduped(pairs, probability, cluster(len(entities), pairs, weight, apart, method), apart, stats)


def _judged(edges: Sequence[Edge], place: dict[str, int]) -> dict[tuple[int, int], bool]:
    found = {}
    for edge in edges:
        left, right = place.get(edge.target.id), place.get(edge.source.id)
        if left is None or right is None or left == right or edge.deleted_at:
            continue
        if edge.judgement in (Judgement.POSITIVE, Judgement.NEGATIVE):
            found[min(left, right), max(left, right)] = edge.judgement == Judgement.POSITIVE
    return found


def _with_judged(
    pairs: Int[np.ndarray, "m 2"],
    probability: Float[np.ndarray, " m"],
    judged: dict[tuple[int, int], bool],
    n: int,
) -> tuple[Int[np.ndarray, "k 2"], Float[np.ndarray, " k"]]:
    """Replace scores of judged pairs and add those that blocking did not find; scores stay inside (0, 1)."""
    score = dict(zip(map(tuple, pairs.tolist()), np.clip(probability, 1e-6, 1 - 1e-6).tolist(), strict=True))
    score |= {pair: float(yes) for pair, yes in judged.items()}
    ordered = sorted(score)
    return np.array(ordered, dtype=np.int64).reshape(-1, 2), np.array([score[pair] for pair in ordered])


def queue_of(
    found: Deduped, entities: Sequence[EntityProxy], matcher: Matcher, limit: int = 200, explain: bool = True
) -> list[dict[str, Any]]:
    """Return the undecided pairs of largest expected harm as queue items, with what each side stands for."""
    members: dict[int, list[int]] = {}
    for number, label in enumerate(found.clusters.tolist()):
        members.setdefault(label, []).append(number)
    # A pair inside one cluster, if wrong, splits it: each side then stands for itself and what else hangs on it.
    open_pairs = np.flatnonzero((found.probability > 0) & (found.probability < 1)).tolist()

    def sides(number: int) -> tuple[list[int], list[int]]:
        """Give the records on either side of a pair, as they would stand if the pair were wrong."""
        i, j = found.pairs[number].tolist()
        a, b = members[int(found.clusters[i])], members[int(found.clusters[j])]
        if a is b:
            half = [m for m in a if m not in (i, j)]
            return [i, *half], [j]
        return a, b

    harm = [
        expected_harm(float(found.probability[number]), *(len(side) for side in sides(number))) for number in open_pairs
    ]
    items = []
    for place in np.argsort(-np.asarray(harm), kind="stable")[:limit].tolist():
        number = open_pairs[place]
        i, j = found.pairs[number].tolist()
        pair = Pair(entities[i], entities[j])
        left, right = sides(number)
        items.append(
            {
                "left": pair.left.to_dict(),
                "right": pair.right.to_dict(),
                "p": float(found.probability[number]),
                "reasons": {k: round(v, 4) for k, v in matcher.explain(pair).items()} if explain else {},
                "tags": list(tags(pair)),
                "left_cluster": [str(entities[m].id) for m in left],
                "right_cluster": [str(entities[m].id) for m in right],
            }
        )
    return items
