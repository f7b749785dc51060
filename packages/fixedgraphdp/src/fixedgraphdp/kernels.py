"""Compiled inner loops of contribution bounding; each takes and changes plain arrays.

``no_type_check`` keeps jaxtyping's test hook from wrapping what numba has to read.
"""

from __future__ import annotations

from typing import no_type_check

import numba


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
def admit_marked(order, example_ptr, example_users, k, degree, selected, state):
    """Do what `admit` does and price users for the certificate in the same pass, where all examples weigh 1.

    ``state`` of a user is 0 with budget left, 1 when full, 3 when full and priced: an example that does not fit and
    has no priced user yet prices its first full one. One byte a user keeps the random reads in cache.
    """
    for e in order:
        start, stop = example_ptr[e], example_ptr[e + 1]
        found = 0
        for i in range(start, stop):
            found |= state[example_users[i]]
        if found >= 2:
            continue
        if found == 1:
            for i in range(start, stop):
                if state[example_users[i]] == 1:
                    state[example_users[i]] = 3
                    break
        else:
            selected[e] = True
            for i in range(start, stop):
                v = example_users[i]
                degree[v] += 1
                if degree[v] == k:
                    state[v] = 1


@numba.njit(cache=True)
@no_type_check
def charge(order, example_ptr, example_users, k, weight, selected, degree, prices):
    """Price full users so that each example outside is covered; false if one outside still fits.

    Goes through ``order`` as greedy does, with ``degree`` (zeros at first) the selected ones so far, so that a greedy
    set's outside examples are charged to users who were full of heavier ones by then. What only later ones keep out is
    charged at the end.
    """
    late = False
    for e in order:
        start, stop = example_ptr[e], example_ptr[e + 1]
        if selected[e]:
            for i in range(start, stop):
                degree[example_users[i]] += 1
        elif not _charged(e, example_ptr, example_users, k, weight, degree, prices):
            late = True
    if late:
        for e in order:
            if not selected[e] and not _charged(e, example_ptr, example_users, k, weight, degree, prices):
                return False
    return True


@numba.njit(cache=True)
@no_type_check
def _charged(e, example_ptr, example_users, k, weight, degree, prices):
    payer = -1
    paid = 0.0
    for i in range(example_ptr[e], example_ptr[e + 1]):
        v = example_users[i]
        if degree[v] >= k:
            payer = v
            paid += prices[v]
    if payer >= 0 and paid < weight[e]:
        prices[payer] += weight[e] - paid
    return payer >= 0


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
