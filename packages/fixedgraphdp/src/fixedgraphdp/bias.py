r"""Selection bias of bounding: how unequal inclusion probabilities are, when that does no harm, what repairs it.

A randomised bounding includes example e with probability :math:`p_e`, and the mean of any f over the kept examples is
off by about :math:`\mathrm{Cov}(p, f) / \bar p`, at most :math:`\mathrm{CV}(p)\, \mathrm{SD}(f)`. The first factor is
public.
"""

from __future__ import annotations

from typing import NamedTuple

import networkx as nx
import numpy as np
from jaxtyping import Float, Int, Num
from scipy.stats import chi2

from fixedgraphdp.bounding import Bounded, bound, certified
from fixedgraphdp.graph import AttributionGraph
from fixedgraphdp.greedy import greedy_set
from papers_shared.errors import InputError

SMALL = 64
"""Up to so many examples, edge-transitivity is decided; beyond, only refuted."""


class BiasReport(NamedTuple):
    """What can be said of selection bias from the public graph alone.

    Attributes
    ----------
    cv
        Coefficient of variation of the inclusion probabilities, without the noise of their estimation.
    p
        ``(n,)`` estimated inclusion probabilities.
    p_value
        Of the hypothesis that all are equal.
    by_size, by_degree
        Rows ``(level, examples, mean p)`` by users of the example, and by quarter of its busiest user's degree.
    vanishes
        Each sufficient condition for zero bias: true, false, or None where it was not decided.
    verdict
        One sentence.
    """

    cv: float
    p: Float[np.ndarray, " n"]
    p_value: float
    by_size: list[tuple[str, int, float]]
    by_degree: list[tuple[str, int, float]]
    vanishes: dict[str, bool | None]
    verdict: str


class FairBounding(NamedTuple):
    """Priorities that make inclusion more equal: ``scores`` for `fair_bound`, and CV(p) after each round kept."""

    scores: Float[np.ndarray, " n"]
    p: Float[np.ndarray, " n"]
    cv_history: list[float]


def inclusion_probabilities(
    graph: AttributionGraph,
    k: int,
    *,
    method: str = "greedy",
    order: str = "size",
    scores: Float[np.ndarray, " n"] | None = None,
    runs: int = 200,
    seed: int = 0,
) -> Float[np.ndarray, " n"]:
    r"""Estimate each example's probability of being kept, over random ties (or random priorities).

    Parameters
    ----------
    graph, k, method, order
        As in `fixedgraphdp.bounding.bound`, with a new key each run.
    scores
        With scores s, greedy in descending order of :math:`U_e^{1/s_e}` with uniform U instead.
    runs
        How often to draw; the standard error is at most :math:`1 / (2\sqrt{runs})`.
    seed
        Of all runs.
    """
    counts = np.zeros(graph.n_examples)
    rng = np.random.default_rng([seed, 3])
    for run in range(runs):
        if scores is not None:
            kept = _prioritised(graph, k, scores, rng)
        else:
            kept = bound(graph, k, method, order=order, key=seed * 100_003 + run).selected
        counts[kept] += 1
    return counts / runs


def variation(p: Float[np.ndarray, " n"], runs: int | None = None) -> float:
    r"""Return CV(p); with ``runs``, the binomial noise of their estimates is taken out.

    .. math:: \widehat{\mathrm{Var}}(p) = \mathrm{Var}(\hat p) - \overline{\hat p (1 - \hat p)} / (R - 1)
    """
    mean = float(p.mean())
    if mean == 0:
        return 0.0
    noise = float((p * (1 - p)).mean()) / (runs - 1) if runs and runs > 1 else 0.0
    return float(np.sqrt(max(0.0, float(p.var()) - noise))) / mean


def mean_bias(p: Float[np.ndarray, " n"], f: Num[np.ndarray, " n"]) -> float:
    r"""Return :math:`\mathrm{Cov}(p, f) / \bar p`, by how much the mean of f over kept examples is off.

    It looks at contents f, so it is for people who may see them; its result is not private.
    """
    return float(np.mean((p - p.mean()) * (f - f.mean())) / p.mean())


def ht_weights(p: Float[np.ndarray, " n"], w_max: float = 4.0) -> Float[np.ndarray, " n"]:
    r"""Return Horvitz-Thompson weights :math:`\min(\bar p / p_e, w_{max})`; the sensitivity becomes :math:`k w_{max}`.

    Raises
    ------
    InputError
        ``w_max`` below 1.
    """
    if w_max < 1:
        raise InputError(f"w_max must be at least 1, not {w_max}")
    return np.minimum(p.mean() / np.maximum(p, 1e-12), w_max)


def fair_scores(graph: AttributionGraph, k: int, *, rounds: int = 20, runs: int = 64, seed: int = 0) -> FairBounding:
    r"""Raise the priority of examples that are kept too rarely, while CV(p) falls.

    Greedy by random priority :math:`U_e^{1/s_e}`, largest first, starting from s = 1; after each round of ``runs``
    draws :math:`s_e \leftarrow s_e \sqrt{\bar p / p_e}`. It evens out what the order decides; a user of D examples
    keeps k/D of them on average in any order, and that inequality stays.
    """
    scores = np.ones(graph.n_examples)
    p = inclusion_probabilities(graph, k, scores=scores, runs=runs, seed=seed)
    history = [variation(p, runs)]
    best = FairBounding(scores, p, history)
    for step in range(1, rounds + 1):
        scores = scores * np.sqrt(p.mean() / np.maximum(p, 0.5 / runs))
        scores /= np.exp(np.log(scores).mean())
        p = inclusion_probabilities(graph, k, scores=scores, runs=runs, seed=seed + step)
        cv = variation(p, runs)
        if cv >= history[-1]:
            break
        history.append(cv)
        best = FairBounding(scores, p, history)
    return best


def fair_bound(graph: AttributionGraph, k: int, scores: Float[np.ndarray, " n"], *, seed: int = 0) -> Bounded:
    """Draw one bounding with the priorities of `fair_scores`, ready for training."""
    rng = np.random.default_rng([seed, 4])
    return certified(graph, k, _prioritised(graph, k, scores, rng), method="fair")


def _prioritised(
    graph: AttributionGraph, k: int, scores: Float[np.ndarray, " n"], rng: np.random.Generator
) -> Int[np.ndarray, " s"]:
    """Run greedy once in descending order of U^(1/s)."""
    return greedy_set(graph, k, np.argsort(-np.log(rng.random(graph.n_examples)) / scores, kind="stable"))


def bias_report(
    graph: AttributionGraph, k: int, *, method: str = "greedy", order: str = "size", runs: int = 200, seed: int = 0
) -> BiasReport:
    """Diagnose selection bias from the public graph: how unequal inclusion is, for whom, and whether it can matter.

    Parameters
    ----------
    graph, k, method, order, runs, seed
        As in `inclusion_probabilities`.
    """
    p = inclusion_probabilities(graph, k, method=method, order=order, runs=runs, seed=seed)
    cv = variation(p, runs)
    mean = p.mean()
    statistic = float(((p - mean) ** 2).sum() * runs / max(mean * (1 - mean), 1e-12))
    p_value = float(chi2.sf(statistic, graph.n_examples - 1)) if 0 < mean < 1 else 1.0
    busiest = np.zeros(graph.n_examples, np.int64)
    np.maximum.at(busiest, graph.example_of_incidence, graph.degrees[graph.example_users])
    edges = np.unique(np.quantile(busiest, [0, 0.25, 0.5, 0.75, 1]).astype(int))
    level = np.searchsorted(edges[1:-1], busiest, side="left")
    by_degree = [
        (_span(busiest[level == step]), int((level == step).sum()), float(p[level == step].mean()))
        for step in np.unique(level)
    ]
    by_size = [
        (str(size), int((graph.sizes == size).sum()), float(p[graph.sizes == size].mean()))
        for size in np.unique(graph.sizes)
    ]
    vanishes = conditions(graph, k)
    return BiasReport(cv, p, p_value, by_size, by_degree, vanishes, _verdict(cv, p_value, vanishes))


def conditions(graph: AttributionGraph, k: int) -> dict[str, bool | None]:
    """Decide the conditions on the graph under which bounding biases nothing, whatever the contents.

    ``nobody is over k``: everything is kept. ``disjoint equal clusters`` and ``edge-transitive``: all examples are
    alike, so p is constant (for ties broken at random). A fourth, contents exchangeable given the graph, is not a
    property of the graph. Edge-transitivity is refuted by colour refinement at any size and decided up to `SMALL`
    examples.
    """
    return {
        "nobody is over k": bool(graph.degrees.max(initial=0) <= k),
        "disjoint equal clusters": _equal_clusters(graph),
        "edge-transitive": _edge_transitive(graph),
    }


def _equal_clusters(graph: AttributionGraph) -> bool:
    """Tell whether examples fall into equally many copies of disjoint user sets of one size."""
    sets: dict[bytes, int] = {}
    for e in range(graph.n_examples):
        users = graph.users_of(e).tobytes()
        sets[users] = sets.get(users, 0) + 1
    members = sum(len(users) for users in sets) // 8
    disjoint = members == int((graph.degrees > 0).sum())
    return bool(disjoint and len(set(sets.values())) == 1 and len(np.unique(graph.sizes)) == 1)


def _edge_transitive(graph: AttributionGraph) -> bool | None:
    examples = np.zeros(graph.n_examples, np.int64)
    users = np.zeros(graph.n_users, np.int64)
    e_of, v_of = graph.example_of_incidence, graph.example_users
    for _ in range(graph.n_examples + graph.n_users):  # colour refinement: signatures are multisets of colours
        seen = len(np.unique(users))
        users = _refined(users, examples[e_of], v_of)
        examples = _refined(examples, users[v_of], e_of)
        if len(np.unique(examples)) > 1:
            return False
        if len(np.unique(users)) == seen:
            break
    if graph.n_examples > SMALL:
        return None
    plain = nx.Graph()
    plain.add_nodes_from((("e", e) for e in range(graph.n_examples)), kind="example")
    plain.add_nodes_from((("v", v) for v in range(graph.n_users)), kind="user")
    plain.add_edges_from((("e", e), ("v", v)) for e, v in zip(e_of.tolist(), v_of.tolist(), strict=True))
    first = plain.copy()
    first.nodes[("e", 0)]["kind"] = "marked"
    for e in range(1, graph.n_examples):
        other = plain.copy()
        other.nodes[("e", e)]["kind"] = "marked"
        if not nx.is_isomorphic(first, other, node_match=lambda a, b: a["kind"] == b["kind"]):
            return False
    return True


def _refined(
    colours: Int[np.ndarray, " n"], neighbours: Int[np.ndarray, " m"], owner: Int[np.ndarray, " m"]
) -> Int[np.ndarray, " n"]:
    """Recolour each node by its colour and the multiset of its neighbours' colours."""
    order = np.lexsort((neighbours, owner))
    parts = np.split(neighbours[order], np.flatnonzero(np.diff(owner[order])) + 1)
    signature: dict[int, bytes] = {int(o): part.tobytes() for o, part in zip(np.unique(owner), parts, strict=False)}
    names: dict[tuple[int, bytes], int] = {}
    keys = [(int(colour), signature.get(node, b"")) for node, colour in enumerate(colours)]
    for key in sorted(set(keys)):
        names[key] = len(names)
    return np.array([names[key] for key in keys], np.int64)


def _span(values: np.ndarray) -> str:
    low, high = int(values.min()), int(values.max())
    return str(low) if low == high else f"{low}-{high}"


def _verdict(cv: float, p_value: float, vanishes: dict[str, bool | None]) -> str:
    reason = next((name for name, holds in vanishes.items() if holds), None)
    if reason:
        return f"no bias: {reason}"
    if cv < 0.01 or p_value > 0.05:
        return "no sign of unequal inclusion: bias vanishes for contents of bounded spread"
    return (
        f"a mean may shift by up to {cv:.2g} of its standard deviation; "
        "it vanishes only if contents do not depend on who owns them"
    )
