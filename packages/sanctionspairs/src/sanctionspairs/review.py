"""A queue of pairs for people: worst expected harm first, decisions only ever appended, undo as one more line.

The queue is one JSON Lines file: ``item`` lines (a pair, its score, why), then ``decision`` and ``undo`` lines in the
order in which people made them. Nothing is rewritten, so nothing that was decided can be lost.
"""

from __future__ import annotations

import datetime
import getpass
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from papers_shared.artifacts import append_jsonl, read_jsonl, write_jsonl, write_text
from papers_shared.errors import InputError
from sanctionspairs.abstain import abstain_band, conformal_sets, risk_coverage
from sanctionspairs.errors import SanctionsPairsError

if TYPE_CHECKING:
    from nomenklatura.resolver.edge import Edge

JUDGEMENTS = ("positive", "negative", "unsure")
__all__ = [
    "Decision",
    "Item",
    "Queue",
    "abstain_band",
    "conformal_sets",
    "expected_harm",
    "make_queue",
    "risk_coverage",
]


def expected_harm(p: float, left_size: int, right_size: int, cost: float | int = 1.0) -> float:
    r"""Return :math:`\\min(p, 1 - p) \\, c \\, |A| |B|`: pairs that a wrong (or missed) merge of A and B gets wrong."""
    return min(p, 1 - p) * cost * left_size * right_size


@dataclass(frozen=True)
class Item:
    """A pair to look at.

    Attributes
    ----------
    number : int
        Its place in the file, from 0.
    left, right : dict
        The records, in the public format.
    p : float
        Probability that they are one entity.
    reasons : dict
        What the score is made of: feature to contribution.
    tags : tuple of str
        Why it is hard.
    left_cluster, right_cluster : tuple of str
        Ids that each side already stands for, itself included.
    """

    number: int
    left: Mapping[str, Any]
    right: Mapping[str, Any]
    p: float
    reasons: Mapping[str, float] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    left_cluster: tuple[str, ...] = ()
    right_cluster: tuple[str, ...] = ()


@dataclass(frozen=True)
class Decision:
    """What somebody decided."""

    item: int
    judgement: str
    user: str
    time: str
    score: float
    reasons: Mapping[str, float]


def make_queue(path: Path, items: Iterable[Mapping[str, Any]], *, force: bool = False) -> Path:
    """Write a new queue.

    Parameters
    ----------
    path
        The file.
    items
        Mappings with ``left``, ``right``, ``p`` and optionally ``reasons``, ``tags``, ``left_cluster``,
        ``right_cluster``.
    force
        Replace a queue, with its decisions.

    Raises
    ------
    InputError
        The file exists.
    """
    return write_jsonl(path, ({"type": "item", **item} for item in items), force=force)


class Queue:
    """Opens a queue; decisions go to the end of the file at once.

    Parameters
    ----------
    path
        The file that `make_queue` wrote.
    cost
        Of one wrong pair, in the order of items.

    Raises
    ------
    SanctionsPairsError
        The file is missing or holds something else.
    """

    def __init__(self, path: str | Path, cost: float | int = 1.0) -> None:
        self.path = Path(path)
        self.cost = cost
        self.items: list[Item] = []
        self.history: list[Decision] = []
        self._lines = 0
        self._replay(first=True)

    def _replay(self, first: bool = False) -> None:
        """Read what has been appended since, by this process or another one."""
        try:
            rows = list(read_jsonl(self.path))
        except InputError as error:
            raise SanctionsPairsError(f"cannot open the queue: {error.message}", error.hint) from error
        for number, row in enumerate(rows[self._lines :], self._lines + 1):
            try:
                self._apply(row)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise SanctionsPairsError(f"{self.path}, line {number}: not a line of a review queue") from error
        self._lines = len(rows)
        if first and not self.items:
            raise SanctionsPairsError(
                f"{self.path} holds no pair to review", "make one with dedupe or matchpairs --out"
            )

    def _apply(self, row: Mapping[str, Any]) -> None:
        kind = row["type"]
        if kind == "item":
            left, right = row["left"], row["right"]
            clusters = {
                side: tuple(row.get(f"{side}_cluster") or (record["id"],))
                for side, record in (("left", left), ("right", right))
            }
            self.items.append(
                Item(
                    len(self.items),
                    left,
                    right,
                    float(row["p"]),
                    dict(row.get("reasons") or {}),
                    tuple(row.get("tags") or ()),
                    clusters["left"],
                    clusters["right"],
                )
            )
        elif kind == "decision":
            keys = ("item", "judgement", "user", "time", "score", "reasons")
            if row["judgement"] not in JUDGEMENTS or not 0 <= row["item"] < len(self.items):
                raise ValueError("no such judgement or item")
            self.history.append(Decision(**{key: row[key] for key in keys}))
        elif kind == "undo":
            if self.history:
                self.history.pop()
        else:
            raise ValueError(kind)

    @property
    def decided(self) -> dict[int, Decision]:
        """The standing decision of each decided item; a later one replaces an earlier one."""
        return {decision.item: decision for decision in self.history}

    def pending(self) -> list[Item]:
        """Return what is still to do, by expected harm given what was decided so far, largest first."""
        done = self.decided
        size = self._cluster_sizes()

        def harm(item: Item) -> float:
            return expected_harm(
                item.p, size(item.left["id"], item.left_cluster), size(item.right["id"], item.right_cluster), self.cost
            )

        return sorted((i for i in self.items if i.number not in done), key=lambda item: (-harm(item), item.number))

    def harm(self, item: Item) -> float:
        """Return an item's expected harm now."""
        size = self._cluster_sizes()
        left, right = size(item.left["id"], item.left_cluster), size(item.right["id"], item.right_cluster)
        return expected_harm(item.p, left, right, self.cost)

    def _cluster_sizes(self) -> Any:
        """Return a function from a record to the size of its cluster after the merges decided so far."""
        parent: dict[str, str] = {}

        def find(name: str) -> str:
            while parent.setdefault(name, name) != name:
                parent[name] = parent[parent[name]]
                name = parent[name]
            return name

        for item in self.items:
            for record, members in ((item.left, item.left_cluster), (item.right, item.right_cluster)):
                for member in members:
                    parent[find(member)] = find(record["id"])
        for number, decision in self.decided.items():
            if decision.judgement == "positive":
                parent[find(self.items[number].right["id"])] = find(self.items[number].left["id"])
        count: dict[str, int] = {}
        for name in list(parent):
            root = find(name)
            count[root] = count.get(root, 0) + 1
        return lambda name, members: count.get(find(name), len(members))

    def decide(self, item: int, judgement: str, user: str | None = None) -> Decision:
        """Append a decision and return it.

        Raises
        ------
        SanctionsPairsError
            No such item or judgement.
        """
        self._replay()
        if judgement not in JUDGEMENTS:
            raise SanctionsPairsError(f"{judgement!r} is no decision", "say positive, negative or unsure")
        if not 0 <= item < len(self.items):
            raise SanctionsPairsError(f"the queue has no pair {item}")
        decision = Decision(item, judgement, user or _user(), _now(), self.items[item].p, self.items[item].reasons)
        self._append({"type": "decision", **decision.__dict__})
        self.history.append(decision)
        return decision

    def undo(self, user: str | None = None) -> Decision | None:
        """Take the last standing decision back, by one more line; None if there is none."""
        self._replay()
        if not self.history:
            return None
        self._append({"type": "undo", "user": user or _user(), "time": _now()})
        return self.history.pop()

    def _append(self, row: Mapping[str, Any]) -> None:
        append_jsonl(self.path, row)
        self._lines += 1

    def export_edges(self, path: str | Path, *, force: bool = False) -> int:
        """Write the standing decisions as nomenklatura resolver edges and return how many.

        One JSON array a line: target, source, judgement, score, user, time; ``nomenklatura load-resolver`` reads it.
        """
        from nomenklatura.judgement import Judgement
        from nomenklatura.resolver.edge import Edge

        lines = [
            Edge(
                self.items[d.item].left["id"],
                self.items[d.item].right["id"],
                Judgement(d.judgement),
                score=d.score,
                user=d.user,
                created_at=d.time,
            ).to_line()
            for d in self.decided.values()
        ]
        write_text(path, "".join(lines), force=force)
        return len(lines)

    def import_edges(self, path: str | Path) -> int:
        """Append the decisions of a resolver's edges that concern pairs of this queue; return how many.

        Raises
        ------
        SanctionsPairsError
            A line is not an edge.
        """
        from nomenklatura.judgement import Judgement

        self._replay()
        pairs = {frozenset((item.left["id"], item.right["id"])): item for item in self.items}
        taken = 0
        for edge in read_edges(path):
            item = pairs.get(frozenset((edge.target.id, edge.source.id)))
            if item is None or edge.judgement == Judgement.NO_JUDGEMENT or edge.deleted_at:
                continue
            score = item.p if edge.score is None else edge.score
            decision = Decision(
                item.number, edge.judgement.value, edge.user or "import", edge.created_at or _now(), score, item.reasons
            )
            self._append({"type": "decision", **decision.__dict__})
            self.history.append(decision)
            taken += 1
        return taken


def read_edges(path: str | Path) -> list[Edge]:
    """Read resolver edges, one JSON array a line.

    Raises
    ------
    SanctionsPairsError
        The file is missing, or a line is not an edge.
    """
    from nomenklatura.resolver.edge import Edge

    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SanctionsPairsError(f"cannot read {path}: {error}") from error
    edges = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            edges.append(Edge.from_line(line))
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise SanctionsPairsError(f"{path}, line {number}: not a resolver edge") from error
    return edges


def queue_items(
    pairs: Sequence[Any],
    probability: Sequence[float],
    reasons: Sequence[Mapping[str, float]],
    tagged: Sequence[Sequence[str]],
) -> list[dict[str, Any]]:
    """Return queue items of pairs; probabilities that are NaN (no answer) count as 1/2."""
    return [
        {
            "left": pair.left.to_dict(),
            "right": pair.right.to_dict(),
            "p": 0.5 if math.isnan(p) else float(p),
            "reasons": {name: round(value, 4) for name, value in why.items()},
            "tags": list(tags),
        }
        for pair, p, why, tags in zip(pairs, probability, reasons, tagged, strict=True)
    ]


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat()[:28]


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
