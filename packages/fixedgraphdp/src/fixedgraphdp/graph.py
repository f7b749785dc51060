"""The public attribution hypergraph: which users each example belongs to, in compressed rows both ways."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int

from papers_shared.errors import InputError

if TYPE_CHECKING:
    import networkx as nx


@dataclass(frozen=True, eq=False)
class AttributionGraph:
    r"""A hypergraph :math:`G = (V, E)` of users and examples; it is public, the examples' contents are not.

    Users and examples are numbered from 0; every method of this package speaks of these numbers. Make one with a
    ``from_...`` method, which checks it.

    Attributes
    ----------
    example_ptr, example_users
        int64 ``(n + 1,)`` and ``(incidences,)``: the users of example ``e`` are
        ``example_users[example_ptr[e] : example_ptr[e + 1]]``, ascending.
    user_ptr, user_examples
        The same from the users' side.
    example_ids, user_ids
        The names the data gave, in the order of the numbers.

    References
    ----------
    Ganesh et al., "It's My Data Too", ICML 2025 (arXiv 2503.03622), section 2.
    """

    example_ptr: Int[np.ndarray, " n_plus_1"]
    example_users: Int[np.ndarray, " incidences"]
    user_ptr: Int[np.ndarray, " v_plus_1"]
    user_examples: Int[np.ndarray, " incidences"]
    example_ids: np.ndarray
    user_ids: np.ndarray

    @property
    def n_examples(self) -> int:
        """How many examples there are, :math:`n`."""
        return len(self.example_ptr) - 1

    @property
    def n_users(self) -> int:
        """How many users there are, :math:`|V|`."""
        return len(self.user_ptr) - 1

    @property
    def n_incidences(self) -> int:
        r"""How many (example, user) pairs there are, :math:`\sum_e |e|`."""
        return len(self.example_users)

    @cached_property
    def sizes(self) -> Int[np.ndarray, " n"]:
        """Users of each example, :math:`|e|`."""
        return np.diff(self.example_ptr)

    @cached_property
    def degrees(self) -> Int[np.ndarray, " v"]:
        """Examples of each user."""
        return np.diff(self.user_ptr)

    @cached_property
    def r(self) -> int:
        """The most users of any example."""
        return int(self.sizes.max(initial=0))

    @cached_property
    def example_of_incidence(self) -> Int[np.ndarray, " incidences"]:
        """The example of each entry of ``example_users``."""
        return np.repeat(np.arange(self.n_examples), self.sizes)

    def users_of(self, example: int) -> Int[np.ndarray, " size"]:
        """Return the users of one example."""
        return self.example_users[self.example_ptr[example] : self.example_ptr[example + 1]]

    def examples_of(self, user: int) -> Int[np.ndarray, " degree"]:
        """Return the examples of one user."""
        return self.user_examples[self.user_ptr[user] : self.user_ptr[user + 1]]

    def incidences_of(self, selected: Int[np.ndarray, " s"]) -> tuple[Int[np.ndarray, " m"], Int[np.ndarray, " m"]]:
        """Return the users of some examples, one after the other, and for each the place of its example in the list."""
        sizes = self.sizes[selected]
        offsets = self.example_ptr[selected] - np.cumsum(sizes) + sizes
        places = np.arange(sizes.sum()) + np.repeat(offsets, sizes)
        return self.example_users[places], np.repeat(np.arange(len(selected)), sizes)

    def user_degrees(self, selected: Int[np.ndarray, " s"]) -> Int[np.ndarray, " v"]:
        r"""Count each user's selected examples, :math:`\deg_S(v)`."""
        return np.bincount(self.incidences_of(selected)[0], minlength=self.n_users)

    def stats(self) -> dict[str, float | int]:
        """Sizes and degrees in one mapping."""
        return {
            "examples": self.n_examples,
            "users": self.n_users,
            "incidences": self.n_incidences,
            "r": self.r,
            "max_degree": int(self.degrees.max(initial=0)),
            "mean_degree": float(self.degrees.mean()) if self.n_users else 0.0,
            "public_examples": int((self.sizes == 0).sum()),
        }

    def subgraph(self, examples: Int[np.ndarray, " s"]) -> AttributionGraph:
        """Keep these examples, in this order, and all users."""
        lists = [self.users_of(int(e)) for e in examples]
        return AttributionGraph.from_lists(
            lists, n_users=self.n_users, example_ids=self.example_ids[examples], user_ids=self.user_ids, empty="public"
        )

    def to_multi_owner(self) -> dict[str, Int[np.ndarray, " incidences"]]:
        """Return the edge list that JAX Privacy's ``MultiOwnerGraph(**...)`` takes."""
        return {"example_ids": self.example_of_incidence, "user_ids": self.example_users.copy()}

    @classmethod
    def from_indices(
        cls,
        examples: Int[np.ndarray, " incidences"],
        users: Int[np.ndarray, " incidences"],
        *,
        n_examples: int | None = None,
        n_users: int | None = None,
        example_ids: Any = None,
        user_ids: Any = None,
        empty: str = "error",
        dedupe: bool = False,
    ) -> AttributionGraph:
        """Make a graph from numbered (example, user) pairs in any order.

        Parameters
        ----------
        examples, users
            Numbers from 0, one pair each.
        n_examples, n_users
            How many there are; by default the largest number plus one.
        example_ids, user_ids
            Their names; by default the numbers.
        empty
            ``"error"`` refuses examples without users; ``"public"`` keeps them, as data that nobody's privacy needs.
        dedupe
            Drop repeated pairs instead of refusing them.

        Raises
        ------
        InputError
            A number out of range (an unknown user or example), an example without users (the first five are named),
            a repeated pair.
        """
        examples, users = np.asarray(examples, np.int64), np.asarray(users, np.int64)
        n = int(examples.max(initial=-1)) + 1 if n_examples is None else n_examples
        v = int(users.max(initial=-1)) + 1 if n_users is None else n_users
        names = np.arange(n) if example_ids is None else np.asarray(example_ids)
        people = np.arange(v) if user_ids is None else np.asarray(user_ids)
        for what, numbers, count in (("example", examples, n), ("user", users, v)):
            bad = numbers[(numbers < 0) | (numbers >= count)]
            if len(bad):
                raise InputError(f"unknown {what} {bad[0]}", hint=f"there are {count} {what}s, numbered from 0")
        key = examples * max(v, 1) + users
        key.sort()
        repeated = np.flatnonzero(key[1:] == key[:-1])
        if len(repeated) and not dedupe:
            pair = divmod(int(key[repeated[0]]), max(v, 1))
            raise InputError(
                f"{len(repeated)} repeated (example, user) pairs, first ({names[pair[0]]}, {people[pair[1]]})",
                hint="pass --dedupe (dedupe=True) to drop repetitions",
            )
        if len(repeated):
            key = np.delete(key, repeated)
        example_sorted, example_users = np.divmod(key, max(v, 1))
        sizes = np.bincount(example_sorted, minlength=n)
        lonely = np.flatnonzero(sizes == 0)
        if len(lonely) and empty != "public":
            shown = ", ".join(str(names[e]) for e in lonely[:5])
            raise InputError(
                f"{len(lonely)} examples without users: {shown}" + (", ..." if len(lonely) > 5 else ""),
                hint="attribute them, or treat them as public with --public-empty (empty='public')",
            )
        by_user = np.argsort(example_users, kind="stable")
        return cls(
            example_ptr=_pointers(sizes),
            example_users=example_users,
            user_ptr=_pointers(np.bincount(example_users, minlength=v)),
            user_examples=example_sorted[by_user],
            example_ids=names,
            user_ids=people,
        )

    @classmethod
    def from_lists(cls, lists: Sequence[Any], *, n_users: int | None = None, **options: Any) -> AttributionGraph:
        """Make a graph from one collection of user numbers per example; options as in `from_indices`."""
        rows = [np.fromiter(users, np.int64) for users in lists]
        sizes = np.array([len(row) for row in rows], np.int64)
        users = np.concatenate(rows) if rows else np.empty(0, np.int64)
        examples = np.repeat(np.arange(len(rows)), sizes)
        return cls.from_indices(examples, users, n_examples=len(rows), n_users=n_users, **options)

    @classmethod
    def from_pairs(cls, example_ids: Any, user_ids: Any, **options: Any) -> AttributionGraph:
        """Make a graph from two columns of names; both are numbered in order of first appearance.

        Parameters
        ----------
        example_ids, user_ids
            Sequences of one length, of integers or strings; names of mixed types become strings, with a warning.
        **options
            ``empty`` and ``dedupe`` of `from_indices`.

        Raises
        ------
        InputError
            Columns of different lengths, a missing name, and as in `from_indices`.
        """
        examples, users = _names(example_ids, "example"), _names(user_ids, "user")
        if len(examples) != len(users):
            raise InputError(f"{len(examples)} example ids but {len(users)} user ids")
        example_numbers, example_names = _numbered(examples)
        user_numbers, user_names = _numbered(users)
        return cls.from_indices(
            example_numbers,
            user_numbers,
            n_examples=len(example_names),
            n_users=len(user_names),
            example_ids=example_names,
            user_ids=user_names,
            **options,
        )

    @classmethod
    def from_networkx(cls, graph: nx.Graph) -> AttributionGraph:
        """Take a graph whose edges are examples of two users, or a bipartite one whose ``bipartite=1`` nodes are."""
        nodes = list(graph.nodes)
        sides = {graph.nodes[node].get("bipartite") for node in nodes}
        if sides == {0, 1}:
            users = [node for node in nodes if graph.nodes[node]["bipartite"] == 0]
            number = {user: i for i, user in enumerate(users)}
            events = [node for node in nodes if graph.nodes[node]["bipartite"] == 1]
            lists = [[number[user] for user in graph.neighbors(event)] for event in events]
            return cls.from_lists(
                lists, n_users=len(users), example_ids=[str(e) for e in events], user_ids=[str(u) for u in users]
            )
        number = {node: i for i, node in enumerate(nodes)}
        edges = [(a, b) for a, b in graph.edges if a != b]
        return cls.from_lists(
            [(number[a], number[b]) for a, b in edges],
            n_users=len(nodes),
            example_ids=[f"{a} -- {b}" for a, b in edges],
            user_ids=[str(node) for node in nodes],
        )

    @classmethod
    def from_csv(cls, path: str | Path, **options: Any) -> AttributionGraph:
        """Read a CSV file with columns example_id and user_id. See `fixedgraphdp.data.read_csv`."""
        from fixedgraphdp import data

        return data.read_csv(Path(path), **options)

    @classmethod
    def from_parquet(cls, path: str | Path, **options: Any) -> AttributionGraph:
        """Read a bipartite Parquet table. See `fixedgraphdp.data.read_parquet`."""
        from fixedgraphdp import data

        return data.read_parquet(Path(path), **options)

    @classmethod
    def from_emails(cls, path: str | Path) -> AttributionGraph:
        """Read an mbox file or a maildir folder. `fixedgraphdp.data.read_emails` also lists what it skips."""
        from fixedgraphdp import data

        return data.read_emails(Path(path)).graph

    @classmethod
    def from_arxiv_jsonl(cls, path: str | Path) -> AttributionGraph:
        """Read arXiv metadata. See `fixedgraphdp.data.read_arxiv`."""
        from fixedgraphdp import data

        return data.read_arxiv(Path(path)).graph

    @classmethod
    def from_chat(cls, path: str | Path) -> AttributionGraph:
        """Read a chat export: sender and mentioned own a message. `fixedgraphdp.data.read_chat` also lists skips."""
        from fixedgraphdp import data

        return data.read_chat(Path(path)).graph


def _pointers(counts: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n_plus_1"]:
    pointers = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=pointers[1:])
    return pointers


def _names(column: Any, what: str) -> np.ndarray:
    """Return a column of names as one array of integers or strings."""
    array = column if isinstance(column, np.ndarray) else None
    if array is not None and array.dtype.kind in "iuU":
        return array
    items = list(column)
    missing = [place for place, item in enumerate(items) if item is None or item != item or item == ""]
    if missing:
        raise InputError(f"{what} id missing in row {missing[0] + 1}", hint="every row needs an example and a user")
    kinds = {int if isinstance(item, (int, np.integer)) else type(item) for item in items}
    if kinds <= {int}:
        return np.array(items, np.int64)
    if len(kinds) > 1:
        shown = ", ".join(sorted(kind.__name__ for kind in kinds))
        warnings.warn(f"{what} ids are of mixed types ({shown}) and are all read as text", stacklevel=3)
    return np.array([str(item) for item in items])


def _numbered(names: np.ndarray) -> tuple[Int[np.ndarray, " rows"], np.ndarray]:
    """Number names by first appearance."""
    unique, first, inverse = np.unique(names, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(unique), np.int64)
    rank[order] = np.arange(len(unique))
    return rank[inverse.ravel()], unique[order]
