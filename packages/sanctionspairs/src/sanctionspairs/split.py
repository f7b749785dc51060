"""Splits of pairs: the paper's stratified sample, and one that shares no entity between its parts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from sanctionspairs.errors import SanctionsPairsError
from sanctionspairs.records import Pair


def components(pairs: Sequence[Pair]) -> Int[np.ndarray, " n"]:
    """Return the number of each pair's component: pairs that share a record, directly or through others.

    Returns
    -------
    ndarray
        int64 ``(n,)``, numbered in order of first appearance.
    """
    parent: dict[str, str] = {}

    def find(name: str) -> str:
        """Return the representative of a record's component, and shorten the path to it."""
        root = name
        while parent.setdefault(root, root) != root:
            root = parent[root]
        while parent[name] != root:
            parent[name], name = root, parent[name]
        return root

    for pair in pairs:
        left, right = find(str(pair.left.id)), find(str(pair.right.id))
        if left != right:
            parent[right] = left
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(find(str(pair.left.id)), len(numbers)) for pair in pairs], dtype=np.int64)


def stratified(
    pairs: Sequence[Pair], n: int | None = None, seed: int = 42, dev: float = 0.2
) -> tuple[list[Pair], list[Pair]]:
    """Draw ``n`` scored pairs with the labels' proportions kept; the first ``dev`` share tunes, the rest tests.

    Parameters
    ----------
    pairs
        Where to draw from; pairs that are not scored are left out.
    n
        How many; None takes all.
    seed
        Of the draw.
    dev
        Share of the sample that is dev, in (0, 1).

    Returns
    -------
    tuple of list
        Dev and test.

    Raises
    ------
    SanctionsPairsError
        More pairs are asked for than there are, or ``dev`` is no share.

    References
    ----------
    The paper's sampling: stratified, seed 42, first 20% dev.
    """
    if not 0 < dev < 1:
        raise SanctionsPairsError(f"dev share {dev} must lie between 0 and 1")
    scored = [pair for pair in pairs if pair.scored]
    if n is not None and not 0 < n <= len(scored):
        raise SanctionsPairsError(f"a sample of {n} pairs from {len(scored)} scored ones")
    rng = np.random.default_rng(seed)
    groups = [[i for i, pair in enumerate(scored) if pair.label == label] for label in (1, 0)]
    total = len(scored) if n is None else n
    wanted = round(total * len(groups[0]) / max(1, len(scored)))
    dev_part: list[int] = []
    test_part: list[int] = []
    for members, count in zip(groups, (wanted, total - wanted), strict=True):
        drawn = rng.permutation(members)[:count].astype(int).tolist()
        cut = round(dev * len(drawn))
        dev_part += drawn[:cut]
        test_part += drawn[cut:]
    shuffled = [rng.permutation(part).astype(int).tolist() for part in (dev_part, test_part)]
    return [scored[i] for i in shuffled[0]], [scored[i] for i in shuffled[1]]


def entity_disjoint(
    pairs: Sequence[Pair], ratios: Sequence[float] = (0.70, 0.05, 0.25), seed: int = 42
) -> tuple[list[Pair], ...]:
    r"""Split scored pairs so that no record occurs in two parts, labels in proportion.

    Whole components go to the part that lacks most of what they bring, largest first, ties in random order: for part
    j with wanted counts :math:`w_{jl}` and present counts :math:`c_{jl}` of label l, the component goes to the part
    with the largest :math:`\\sum_l k_l (w_{jl} - c_{jl}) / w_{jl}` for its own counts :math:`k_l`.

    Parameters
    ----------
    pairs
        The pairs; those not scored are left out.
    ratios
        Shares of the parts; they sum to 1.
    seed
        Of the order among components of one size.

    Returns
    -------
    tuple of list
        One list per ratio, in the pairs' own order.

    Raises
    ------
    SanctionsPairsError
        The ratios are no shares, or there are fewer components than parts.
    """
    shares = np.asarray(ratios, dtype=float)
    if shares.ndim != 1 or (shares <= 0).any() or abs(shares.sum() - 1) > 1e-9:
        raise SanctionsPairsError(f"ratios {list(ratios)} must be positive and sum to 1")
    scored = [pair for pair in pairs if pair.scored]
    group = components(scored)
    count = int(group.max()) + 1 if len(group) else 0
    if count < len(shares):
        raise SanctionsPairsError(
            f"{count} components of shared records cannot fill {len(shares)} parts",
            "the pairs hang together too much for an entity-disjoint split",
        )
    labels = np.array([pair.label for pair in scored])
    brings = np.stack([np.bincount(group[labels == label], minlength=count) for label in (0, 1)], axis=1).astype(float)
    wanted = np.maximum(shares[:, None] * brings.sum(axis=0), 1e-9)
    have = np.zeros_like(wanted)
    part = np.empty(count, dtype=np.int64)
    order = np.random.default_rng(seed).permutation(count)
    for component in order[np.argsort(-brings[order].sum(axis=1), kind="stable")]:
        need = ((wanted - have) / wanted) @ brings[component]
        chosen = int(np.argmax(need))
        part[component] = chosen
        have[chosen] += brings[component]
    place = part[group]
    return tuple([pair for pair, p in zip(scored, place, strict=True) if p == j] for j in range(len(shares)))
