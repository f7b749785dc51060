"""Compiled inner loops of contribution bounding; each takes and changes plain arrays.

``no_type_check`` keeps jaxtyping's test hook from wrapping what numba has to read.
"""

from __future__ import annotations

from typing import no_type_check

import numba
import numpy as np


@numba.njit(cache=True)
@no_type_check
def admit(order, example_ptr, example_users, k, degree, selected):
    """Go through ``order`` and add each example whose users all have fewer than ``k``; changes the last two."""
    for e in order:
        if selected[e]:
            continue
        start, stop = example_ptr[e], example_ptr[e + 1]
        free = True
        for i in range(start, stop):
            if degree[example_users[i]] >= k:
                free = False
                break
        if free:
            selected[e] = True
            for i in range(start, stop):
                degree[example_users[i]] += 1


@numba.njit(cache=True)
@no_type_check
def drop_excess(worst_first, example_ptr, example_users, k, degree, selected):
    """Drop selected examples in the order given while they have a user with more than ``k``."""
    for e in worst_first:
        if not selected[e]:
            continue
        start, stop = example_ptr[e], example_ptr[e + 1]
        for i in range(start, stop):
            if degree[example_users[i]] > k:
                selected[e] = False
                break
        if not selected[e]:
            for i in range(start, stop):
                degree[example_users[i]] -= 1


@numba.njit(cache=True)
@no_type_check
def charge(example_ptr, example_users, k, degree, selected, weight, prices):
    """Charge each outside example to its first full user, fill ``prices``, and return the dual value they give."""
    n = len(example_ptr) - 1
    for e in range(n):
        if selected[e]:
            continue
        payer = -1
        for i in range(example_ptr[e], example_ptr[e + 1]):
            if degree[example_users[i]] >= k:
                payer = example_users[i]
                break
        if payer < 0:
            return np.inf
        prices[payer] = max(prices[payer], weight[e])
    total = k * prices.sum()
    for e in range(n):
        left = weight[e]
        for i in range(example_ptr[e], example_ptr[e + 1]):
            left -= prices[example_users[i]]
        total += max(left, 0.0)
    return total


@numba.njit(cache=True)
@no_type_check
def swap_pass(order, example_ptr, example_users, user_ptr, user_examples, weight, k, degree, selected):
    """Exchange one selected example for one or two outside ones of more total weight; return how many times."""
    swaps = 0
    for e in order:
        if not selected[e]:
            continue
        start, stop = example_ptr[e], example_ptr[e + 1]
        selected[e] = False
        for i in range(start, stop):
            degree[example_users[i]] -= 1
        gained = weight[e]
        first, second = -1, -1
        for i in range(start, stop):
            v = example_users[i]
            for p in range(user_ptr[v], user_ptr[v + 1]):
                f = user_examples[p]
                if f == e or selected[f] or not _fits(f, example_ptr, example_users, k, degree):
                    continue
                if weight[f] > gained:
                    first, second, gained = f, -1, weight[f]
                for j in range(example_ptr[f], example_ptr[f + 1]):
                    degree[example_users[j]] += 1
                for i2 in range(start, stop):
                    v2 = example_users[i2]
                    for p2 in range(user_ptr[v2], user_ptr[v2 + 1]):
                        g = user_examples[p2]
                        if g in (e, f) or selected[g] or weight[f] + weight[g] <= gained:
                            continue
                        if _fits(g, example_ptr, example_users, k, degree):
                            first, second, gained = f, g, weight[f] + weight[g]
                for j in range(example_ptr[f], example_ptr[f + 1]):
                    degree[example_users[j]] -= 1
        if first < 0:
            first = e
        else:
            swaps += 1
        for f in (first, second):
            if f >= 0:
                selected[f] = True
                for j in range(example_ptr[f], example_ptr[f + 1]):
                    degree[example_users[j]] += 1
    return swaps


@numba.njit(cache=True)
@no_type_check
def _fits(e, example_ptr, example_users, k, degree):
    for i in range(example_ptr[e], example_ptr[e + 1]):  # noqa: SIM110 (numba has no all())
        if degree[example_users[i]] >= k:
            return False
    return True
