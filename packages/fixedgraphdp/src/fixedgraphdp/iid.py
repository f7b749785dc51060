r"""Private statistics when examples are i.i.d. given a clustered network: tests and means with clipped cluster sums."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import networkx as nx
import numpy as np
from jaxtyping import Float, Int, Num

from fixedgraphdp.bounds import gaussian_sigma
from fixedgraphdp.graph import AttributionGraph
from papers_shared.errors import InputError


class Clusters(NamedTuple):
    """A partition: ``label`` ``(n,)``, -1 for examples left out; the largest cluster ``c``, clusters per user ``s``."""

    label: Int[np.ndarray, " n"]
    count: int
    c: int
    s: int


class Decision(NamedTuple):
    """A private test's answer."""

    reject: bool
    statistic: float
    threshold: float
    tau: float
    noise_scale: float
    m: int
    c: int
    s: int


def clip_level(c: int, m: int, spread: float, *, beta0: float = 0.05, worst_case: bool = False) -> float:
    r"""Return the clip :math:`\tau = B \min(c, \sqrt{2 c \ln(2m/\beta_0)})` of a cluster's sum.

    By Hoeffding's inequality no cluster's centred sum of c terms in [-B, B] exceeds it, except with probability
    :math:`\beta_0`. ``worst_case`` gives :math:`B c`, which ignores that examples are independent.
    """
    if worst_case:
        return spread * c
    return spread * min(float(c), math.sqrt(2 * c * math.log(2 * max(m, 1) / beta0)))


def clusters_from_graph(
    graph: AttributionGraph, method: str = "primary", *, c: int | None = None, s: int | None = None
) -> Clusters:
    """Partition the examples so that each user is in few clusters.

    Parameters
    ----------
    graph
        The hypergraph.
    method
        ``"primary"``: an example goes to its busiest user. ``"components"``: connected components.
        ``"label-propagation"``: communities of users; an example goes to the community of most of its users.
    c
        The most examples of a cluster; later ones are left out (label -1).
    s
        The most clusters of a user: bounding by it leaves out (label -1), greedily from the largest clusters on, the
        examples that would put a user into more. Without it the noise is that of the user in most clusters.

    Raises
    ------
    InputError
        An unknown method; c or s below 1.
    """
    if (c is not None and c < 1) or (s is not None and s < 1):
        raise InputError(f"c and s must be at least 1, not {c} and {s}")
    n = graph.n_examples
    if method == "primary":
        key = graph.degrees * (graph.n_users + 1) + np.arange(graph.n_users, 0, -1)
        raw = np.array([_busiest(graph.users_of(e), key) for e in range(n)], np.int64)
    elif method in ("components", "label-propagation"):
        users = nx.Graph()
        users.add_nodes_from(range(graph.n_users))
        for e in range(n):
            members = graph.users_of(e).tolist()
            users.add_edges_from((members[0], other) for other in members[1:])
        finder = nx.connected_components if method == "components" else nx.community.label_propagation_communities
        of_user = np.zeros(graph.n_users, np.int64)
        for number, community in enumerate(finder(users)):
            of_user[list(community)] = number
        raw = np.array(
            [np.bincount(of_user[graph.users_of(e)]).argmax() if graph.sizes[e] else -1 for e in range(n)], np.int64
        )
    else:
        raise InputError(f"unknown clustering {method!r}", hint="choose primary, components or label-propagation")
    return _limited(graph, raw if s is None else _few_clusters(graph, raw, s), c)


def cluster_sums(
    values: Num[np.ndarray, " n"], clusters: Clusters, centre: float, tau: float
) -> Float[np.ndarray, " m"]:
    """Return each cluster's sum of ``values - centre`` over its examples, clipped to [-tau, tau]."""
    inside = clusters.label >= 0
    sums = np.bincount(clusters.label[inside], values[inside] - centre, clusters.count)
    return np.clip(sums, -tau, tau)


def cluster_test(
    ratios: Float[np.ndarray, " n"],
    clusters: Clusters,
    epsilon: float,
    *,
    delta: float | None = None,
    bounds: tuple[float, float],
    means: tuple[float, float],
    null: Callable[[np.random.Generator], Float[np.ndarray, " n"]],
    level: float = 0.05,
    repeats: int = 1000,
    beta0: float = 0.05,
    worst_case: bool = False,
    seed: int | None = None,
) -> Decision:
    r"""Test whether examples come from P (null) or Q, with user-level differential privacy.

    The log-likelihood ratios :math:`\ell = \ln(q/p)` of a cluster, centred at
    :math:`(E_P \ell + E_Q \ell)/2`, are summed and clipped to :math:`\pm\tau`; the sum of all gets
    :math:`\mathrm{Laplace}(2 s \tau/\epsilon)` noise, for a user is in at most s clusters and moves each by at most
    :math:`2\tau`. It is compared with the quantile of the same statistic simulated under P.

    Parameters
    ----------
    ratios
        ``(n,)`` log-likelihood ratio of each example.
    clusters
        From `clusters_from_graph`.
    epsilon, delta
        Privacy; with a delta the noise is Gaussian, of the same sensitivity.
    bounds
        ``(inf, sup)`` of the ratio; :math:`B = (\sup - \inf)/2`.
    means
        Its expectations under P and Q.
    null
        Draws ``(n,)`` ratios under P.
    level, repeats
        Size of the test, and simulations for its threshold.
    beta0, worst_case
        As in `clip_level`.
    seed
        Of noise and simulation; None for a secret one, without which the answer is not private.

    Raises
    ------
    InputError
        epsilon not positive, delta or level outside (0, 1), ratios outside their bounds, no cluster.
    """
    low, high = bounds
    if not epsilon > 0 or not 0 < level < 1:
        raise InputError(f"epsilon {epsilon} and level {level}: want positive, and in (0, 1)")
    if len(ratios) != len(clusters.label):
        raise InputError(f"{len(ratios)} ratios for {len(clusters.label)} examples")
    if len(ratios) and (ratios.min() < low - 1e-9 or ratios.max() > high + 1e-9):
        raise InputError(f"ratios reach {ratios.min():.4g} to {ratios.max():.4g}, outside [{low:.4g}, {high:.4g}]")
    if not clusters.count:
        raise InputError("there is no cluster to test on")
    rng = np.random.default_rng(None if seed is None else [seed, 6])
    tau = clip_level(clusters.c, clusters.count, (high - low) / 2, beta0=beta0, worst_case=worst_case)
    centre = (means[0] + means[1]) / 2
    scale = _noise_scale(2 * clusters.s * tau, epsilon, delta)
    noise = rng.laplace if delta is None else rng.normal

    def noisy(values: np.ndarray) -> float:
        return float(cluster_sums(values, clusters, centre, tau).sum() + noise(0.0, scale))

    statistic = noisy(ratios)
    threshold = float(np.quantile([noisy(null(rng)) for _ in range(repeats)], 1 - level))
    return Decision(statistic > threshold, statistic, threshold, tau, scale, clusters.count, clusters.c, clusters.s)


def cluster_mean(
    values: Float[np.ndarray, " n"],
    clusters: Clusters,
    epsilon: float,
    *,
    delta: float | None = None,
    bounds: tuple[float, float],
    centre: float | None = None,
    beta0: float = 0.05,
    seed: int | None = None,
) -> float:
    """Estimate the mean of i.i.d. examples with user-level differential privacy.

    Parameters as in `cluster_test`; ``values`` are ``(n,)`` contents within ``bounds``. Cluster sums around ``centre``
    (by default the middle of ``bounds``) are clipped at `clip_level` and get the noise of `cluster_test`. The clip
    holds with high probability only when ``centre`` is near the mean; elsewhere the estimate is pulled towards it, so a
    second call centred at a first estimate pays off.

    Raises
    ------
    InputError
        epsilon not positive, values outside ``bounds``.
    """
    low, high = bounds
    if not epsilon > 0:
        raise InputError(f"epsilon must be positive, not {epsilon}")
    if len(values) and (values.min() < low or values.max() > high):
        raise InputError(f"values reach {values.min():.4g} to {values.max():.4g}, outside [{low:.4g}, {high:.4g}]")
    middle = (low + high) / 2 if centre is None else centre
    tau = clip_level(clusters.c, clusters.count, (high - low) / 2 + abs(middle - (low + high) / 2), beta0=beta0)
    rng = np.random.default_rng(None if seed is None else [seed, 7])
    noise = rng.laplace if delta is None else rng.normal
    total = cluster_sums(values, clusters, middle, tau).sum()
    total += noise(0.0, _noise_scale(2 * clusters.s * tau, epsilon, delta))
    return middle + float(total) / max(int((clusters.label >= 0).sum()), 1)


def _noise_scale(sensitivity: float, epsilon: float, delta: float | None) -> float:
    """Return the scale of the Laplace mechanism, or with a delta of the Gaussian one."""
    return sensitivity / epsilon if delta is None else gaussian_sigma(epsilon, delta, sensitivity)


def _few_clusters(graph: AttributionGraph, raw: Int[np.ndarray, " n"], s: int) -> Int[np.ndarray, " n"]:
    """Keep an example's label while each of its users is in that cluster already or in fewer than s."""
    label = np.full(len(raw), -1)
    member: dict[int, set[int]] = {}
    sizes = np.bincount(raw[raw >= 0])
    inside = np.flatnonzero(raw >= 0)
    for e in inside[np.lexsort((raw[inside], -sizes[raw[inside]]))].tolist():
        cluster = int(raw[e])
        sets = [member.setdefault(user, set()) for user in graph.users_of(e).tolist()]
        if all(cluster in joined or len(joined) < s for joined in sets):
            label[e] = cluster
            for joined in sets:
                joined.add(cluster)
    return label


def _busiest(users: np.ndarray, key: np.ndarray) -> int:
    return int(users[np.argmax(key[users])]) if len(users) else -1


def _limited(graph: AttributionGraph, raw: Int[np.ndarray, " n"], c: int | None) -> Clusters:
    """Leave out what a cluster has beyond c, renumber, and count clusters per user."""
    order = np.argsort(raw, kind="stable")
    ordered = raw[order]
    first = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(ordered) else np.empty(0, np.int64)
    place = np.arange(len(raw)) - np.repeat(first, np.diff(np.r_[first, len(raw)]))
    label = raw.copy()
    if c is not None:
        label[order[place >= c]] = -1
    kept = np.unique(label[label >= 0])
    label[label >= 0] = np.searchsorted(kept, label[label >= 0])
    largest = int(np.bincount(label[label >= 0]).max(initial=0))
    of_incidence = label[graph.example_of_incidence]
    inside = of_incidence >= 0
    pairs = np.unique(graph.example_users[inside] * (len(kept) + 1) + of_incidence[inside])
    s = int(np.bincount(pairs // (len(kept) + 1)).max(initial=1)) if len(pairs) else 1
    return Clusters(label, len(kept), largest, s)
