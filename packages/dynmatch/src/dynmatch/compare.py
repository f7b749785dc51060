"""All methods and peers on one stream: how far from exact, how long per answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from dynmatch import baselines
from dynmatch.exact import ExactMatcher
from dynmatch.grid import GridMatcher
from dynmatch.hub import HubMatcher
from dynmatch.protocol import Id, Update
from papers_shared.errors import InputError


def run_all(updates: list[Update], every: int, seed: int, progress: Callable[[int], None]) -> list[dict[str, Any]]:
    """Apply a W_1 stream with every matcher, and solve from scratch with every peer each ``every`` updates.

    Returns
    -------
    list of dict
        method, mean and largest ratio to the exact W_1, median milliseconds per answer, and answers given. Peers that
        need two sets of one size see only such moments; those not installed are named so.
    """
    dim = next(len(u.point) for u in updates if u.point is not None)
    matchers: dict[str, Any] = {
        "dynmatch exact": ExactMatcher(),
        "dynmatch grid": GridMatcher(dim, seed=seed),
        "dynmatch hub": HubMatcher(seed=seed),
    }
    warm = baselines.WarmEmd()
    peers: dict[str, Callable[[dict[Id, np.ndarray], dict[Id, np.ndarray]], float]] = {
        name: lambda a, b, method=method: method(_rows(a), _rows(b)) for name, method in baselines.METHODS.items()
    }
    peers["POT emd2, warm start"] = warm.solve
    ratios: dict[str, list[float]] = {name: [] for name in [*matchers, *peers]}
    times: dict[str, list[float]] = {name: [] for name in ratios}
    missing: dict[str, str] = {}
    unanswered: dict[str, str] = {}
    points: dict[Id, tuple[str, np.ndarray]] = {}
    for number, update in enumerate(updates, 1):
        progress(1)
        if update.op == "query":
            continue
        for name, matcher in matchers.items():
            began = time.perf_counter()
            matcher.apply([update])
            times[name].append(time.perf_counter() - began)
        if update.op == "insert" and update.id is not None and update.side is not None:
            points[update.id] = (update.side, np.array(update.point))
        elif update.id is not None:
            del points[update.id]
        exact = matchers["dynmatch exact"].cost()
        if number % every or exact <= 0:
            continue
        for name, matcher in matchers.items():
            ratios[name].append(matcher.cost() / exact)
        a, b = ({i: x for i, (s, x) in points.items() if s == side} for side in "AB")
        for name, method in peers.items():
            if name in missing:
                continue
            try:
                began = time.perf_counter()
                value = method(a, b)
                times[name].append(time.perf_counter() - began)
                ratios[name].append(value / exact)
            except InputError as error:
                if "installed" in str(error):
                    missing[name] = "not installed"
                else:
                    unanswered[name] = "sides of unequal size"
    rows = []
    for name, found in ratios.items():
        row: dict[str, Any] = {"method": name, "answers": len(times[name]), "note": missing.get(name)}
        if not found and row["note"] is None:
            row["note"] = unanswered.get(name, "no distance to compare")
        row["mean ratio"] = float(np.mean(found)) if found else None
        row["largest ratio"] = float(np.max(found)) if found else None
        row["median ms"] = float(1e3 * np.median(times[name])) if times[name] else None
        rows.append(row)
    return rows


def _rows(points: dict[Id, np.ndarray]) -> np.ndarray:
    return np.array(list(points.values()))
