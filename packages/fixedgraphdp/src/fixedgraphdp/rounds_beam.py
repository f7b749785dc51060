"""The parallel rounds as a Beam transform: each round is two group-bys, the first by user, the second by example.

`user_stage` and `example_stage` are plain functions of one key's values, so that any map-reduce can run them. Priority
is ascending size, then ascending example id, as in `fixedgraphdp.rounds_sql`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from fixedgraphdp.greedy import checked_budget
from papers_shared.errors import InputError

PAIR, SPENT = "pair", "spent"
"""Kinds of a user's values: an open example, as (PAIR, size, example), and budget gone, as (SPENT, count)."""


def user_stage(
    keyed: tuple[Any, Iterable[tuple[Any, ...]]], k: int
) -> Iterator[tuple[str, tuple[Any, tuple[Any, ...]]]]:
    """Let one user vote for the best open examples that the budget left allows, or shut all when none is left.

    Yields ``("vote", (example, (user, size, verdict)))`` for each open example and ``("spent", (user, (SPENT, n)))``,
    to be carried into the next round.
    """
    user, values = keyed
    values = list(values)
    spent = sum(value[1] for value in values if value[0] == SPENT)
    pairs = sorted(value[1:] for value in values if value[0] == PAIR)
    for place, (size, example) in enumerate(pairs):
        verdict = "shut" if spent >= k else "yes" if place < k - spent else "wait"
        yield "vote", (example, (user, size, verdict))
    if pairs:
        yield "spent", (user, (SPENT, spent))


def example_stage(
    keyed: tuple[Any, Iterable[tuple[Any, int, str]]],
) -> Iterator[tuple[str, Any]]:
    """Take an example that all its users vote for, drop one that a user shut, and leave the others open.

    Yields ``("taken", example)`` and ``("user", (user, value))`` with the values of `user_stage`.
    """
    example, votes = keyed
    votes = list(votes)
    verdicts = {verdict for _, _, verdict in votes}
    if verdicts == {"yes"}:
        yield "taken", example
        yield from (("user", (user, (SPENT, 1))) for user, _, _ in votes)
    elif "shut" not in verdicts:
        yield from (("user", (user, (PAIR, size, example))) for user, size, _ in votes)


def bounding_rounds(k: int, rounds: int) -> Any:
    """Return a Beam transform from (example, user) pairs to the examples taken and those not decided yet.

    A pipeline is laid out before it runs, so the number of rounds is fixed: ``result["open"]`` is empty when they were
    enough (10 to 30 are, on real graphs), and else the set is k-bounded but something more may fit.

    Parameters
    ----------
    k
        Budget of every user.
    rounds
        How many rounds to lay out.

    Returns
    -------
    beam.PTransform
        Gives ``{"taken": PCollection, "open": PCollection}`` of example ids.

    Raises
    ------
    InputError
        Apache Beam is not installed; k or rounds is no whole number of at least 1.

    Examples
    --------
    >>> pairs = pipeline | beam.io.ReadFromParquet("pairs*.parquet", columns=["example_id", "user_id"])
    >>> found = pairs | beam.Map(lambda row: (row["example_id"], row["user_id"])) | bounding_rounds(k=4, rounds=20)
    >>> found["taken"] | beam.Map(str) | beam.io.WriteToText("selected")
    """
    try:
        import apache_beam as beam
    except ImportError as error:
        raise InputError("apache-beam is not installed", hint="install apache-beam beside fixedgraphdp") from error
    k = checked_budget(k)
    if rounds < 1:
        raise InputError(f"rounds must be at least 1, not {rounds}")

    def only(kind: str, tagged: tuple[str, Any]) -> list[Any]:
        return [tagged[1]] if tagged[0] == kind else []

    def with_size(keyed: tuple[Any, Iterable[Any]]) -> Iterator[tuple[Any, tuple[Any, ...]]]:
        example, users = keyed[0], list(keyed[1])
        return ((user, (PAIR, len(users), example)) for user in users)

    def expand(pairs: Any) -> dict[str, Any]:
        """Lay the rounds out one after the other."""
        taken = []
        keyed = pairs | "users of an example" >> beam.GroupByKey() | "open" >> beam.FlatMap(with_size)
        for number in range(1, rounds + 1):
            voted = keyed | f"by user {number}" >> beam.GroupByKey() | f"vote {number}" >> beam.FlatMap(user_stage, k)
            votes = voted | f"votes {number}" >> beam.FlatMap(partial(only, "vote"))
            spent = voted | f"spent {number}" >> beam.FlatMap(partial(only, "spent"))
            counted = (
                votes | f"by example {number}" >> beam.GroupByKey() | f"count {number}" >> beam.FlatMap(example_stage)
            )
            taken.append(counted | f"taken {number}" >> beam.FlatMap(partial(only, "taken")))
            still = counted | f"still open {number}" >> beam.FlatMap(partial(only, "user"))
            keyed = (still, spent) | f"next {number}" >> beam.Flatten()
        left = keyed | "pairs left" >> beam.FlatMap(lambda item: [item[1][2]] if item[1][0] == PAIR else [])
        return {"taken": taken | "all taken" >> beam.Flatten(), "open": left | "each once" >> beam.Distinct()}

    return beam.ptransform_fn(expand)()
