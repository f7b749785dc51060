"""All methods and peers on one stream: how far from exact, how long per answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from dynmatch import baselines
from dynmatch.errors import UnequalSizesError
from dynmatch.exact import ExactMatcher
from dynmatch.grid import GridMatcher
from dynmatch.hub import HubMatcher
from dynmatch.protocol import Id, Update
from papers_shared.errors import InputError

Points = dict[tuple[Id, int], np.ndarray]  # by id, and the number of the copy


def run_all(updates: list[Update], every: int, seed: int, progress: Callable[[int], None]) -> list[dict[str, Any]]:
    """Apply a W_1 stream with every matcher, and solve from scratch with every peer each ``every`` updates.

    Returns
    -------
    list of dict
        method, mean and largest ratio to the exact W_1, median milliseconds per answer, and answers given. Peers that
        need two sets of one size see only such moments, and ``note`` says how many they missed; those not installed
        are named so. A point of weight w stands w times before a peer. Each peer solves a small problem first, so that
        no time holds an import or a compilation.
    """
    dim = next(len(u.point) for u in updates if u.point is not None)
    matchers: dict[str, Any] = {
        "dynmatch exact": ExactMatcher(),
        "dynmatch grid": GridMatcher(dim, seed=seed),
        "dynmatch hub": HubMatcher(seed=seed),
    }
    peers: dict[str, Callable[[Points, Points], float]] = {
        name: lambda a, b, method=method: method(_rows(a), _rows(b)) for name, method in baselines.METHODS.items()
    }
    peers["POT emd2, warm start"] = baselines.WarmEmd().solve
    missing = _not_installed(peers, dim)
    unequal = dict.fromkeys(peers, 0)
    ratios: dict[str, list[float]] = {name: [] for name in [*matchers, *peers]}
    times: dict[str, list[float]] = {name: [] for name in ratios}
    points: dict[Id, tuple[str, np.ndarray, int]] = {}
    for number, update in enumerate(updates, 1):
        progress(1)
        if update.op == "query":
            continue
        for name, matcher in matchers.items():
            began = time.perf_counter()
            matcher.apply([update])
            times[name].append(time.perf_counter() - began)
        if update.op == "insert" and update.id is not None and update.side is not None:
            points[update.id] = (update.side, np.array(update.point), update.weight)
        elif update.id is not None:
            del points[update.id]
        exact = matchers["dynmatch exact"].cost()
        if number % every or exact <= 0:
            continue
        for name, matcher in matchers.items():
            ratios[name].append(matcher.cost() / exact)
        a, b = ({(i, c): x for i, (s, x, w) in points.items() if s == side for c in range(w)} for side in "AB")
        for name, method in peers.items():
            if name in missing:
                continue
            try:
                began = time.perf_counter()
                value = method(a, b)
                times[name].append(time.perf_counter() - began)
                ratios[name].append(value / exact)
            except UnequalSizesError:
                unequal[name] += 1
    rows = []
    for name, found in ratios.items():
        note = f"{unequal[name]} times the sides had unequal sizes" if unequal.get(name) else missing.get(name)
        if not found and note is None:
            note = "no distance to compare"
        row: dict[str, Any] = {"method": name, "answers": len(times[name]), "note": note}
        row["mean ratio"] = float(np.mean(found)) if found else None
        row["largest ratio"] = float(np.max(found)) if found else None
        row["median ms"] = float(1e3 * np.median(times[name])) if times[name] else None
        rows.append(row)
    return rows


def _not_installed(peers: dict[str, Callable[[Points, Points], float]], dim: int) -> dict[str, str]:
    """Let each peer solve a small problem, and say which cannot for want of its library."""
    missing = {}
    a: Points = {(f"a{i}", 0): np.full(dim, float(i)) for i in range(3)}
    b: Points = {(f"b{i}", 0): np.full(dim, float(i)) for i in range(3)}
    for name, method in peers.items():
        try:
            method(a, b)
        except InputError:
            missing[name] = "not installed"
    return missing


def _rows(points: Points) -> np.ndarray:
    return np.array(list(points.values()))
