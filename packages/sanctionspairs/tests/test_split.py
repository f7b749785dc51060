"""Splits: proportions, reproducibility, and that no record is on two sides."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sanctionspairs_records import make

from sanctionspairs.errors import SanctionsPairsError
from sanctionspairs.records import Pair
from sanctionspairs.split import components, entity_disjoint, stratified

edges = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), st.booleans()), min_size=1, max_size=60)


def pairs_of(found):
    return [Pair(make(f"e{a}"), make(f"e{b}"), "positive" if yes else "negative") for a, b, yes in found]


def ids(pairs):
    return {str(entity.id) for pair in pairs for entity in (pair.left, pair.right)}


@settings(max_examples=40)
@given(edges)
def test_components_are_those_of_the_graph(found):
    group = components(pairs_of(found))
    reach = {a: {a} for edge in found for a in edge[:2]}
    for _ in range(len(reach)):
        for a, b, _ in found:
            joint = reach[a] | reach[b]
            for node in joint:
                reach[node] = joint
    for i, (a, _, _) in enumerate(found):
        for j, (b, _, _) in enumerate(found):
            assert (group[i] == group[j]) == (b in reach[a])


@settings(max_examples=30)
@given(edges, st.integers(0, 5))
def test_no_record_is_in_two_parts_and_every_pair_in_one(found, seed):
    pairs = pairs_of(found)
    if len(set(components(pairs).tolist())) < 3:
        with pytest.raises(SanctionsPairsError, match="components"):
            entity_disjoint(pairs, (0.5, 0.25, 0.25), seed)
        return
    parts = entity_disjoint(pairs, (0.5, 0.25, 0.25), seed)
    for i in range(3):
        for j in range(i):
            assert not ids(parts[i]) & ids(parts[j])
    assert sorted(map(id, (pair for part in parts for pair in part))) == sorted(map(id, pairs))


def test_disjoint_parts_have_the_shares_and_labels_asked_for(small):
    parts = entity_disjoint(small.pairs, (0.7, 0.05, 0.25), 42)
    total, positives = len(small.pairs), np.mean([pair.label for pair in small.pairs])
    for part, share in zip(parts, (0.7, 0.05, 0.25), strict=True):
        assert len(part) / total == pytest.approx(share, abs=0.01)
        assert np.mean([pair.label for pair in part]) == pytest.approx(positives, abs=0.02)
    again = entity_disjoint(small.pairs, (0.7, 0.05, 0.25), 42)
    assert [list(map(id, part)) for part in parts] == [list(map(id, part)) for part in again]
    other = entity_disjoint(small.pairs, (0.7, 0.05, 0.25), 43)
    assert ids(parts[1]) != ids(other[1])


def test_a_stratified_sample_keeps_proportions_and_repeats(small):
    dev, test = stratified(small.pairs, 500, seed=42, dev=0.2)
    assert (len(dev), len(test)) == (100, 400)
    positives = np.mean([pair.label for pair in small.pairs])
    for part in (dev, test):
        assert np.mean([pair.label for pair in part]) == pytest.approx(positives, abs=0.01)
    assert not {id(pair) for pair in dev} & {id(pair) for pair in test}
    again = stratified(small.pairs, 500, seed=42, dev=0.2)
    assert list(map(id, again[1])) == list(map(id, test))


def test_pairs_without_a_verdict_are_left_out():
    pairs = pairs_of([(i, i + 100, i % 2 == 0) for i in range(20)])
    pairs += [Pair(make("x"), make("y"), "unsure"), Pair(make("x"), make("z"), "no_judgement")]
    dev, test = stratified(pairs)
    assert len(dev) + len(test) == 20
    assert all(pair.scored for part in entity_disjoint(pairs) for pair in part)


def test_impossible_samples_are_refused(small):
    with pytest.raises(SanctionsPairsError, match="sample of"):
        stratified(small.pairs, 10**6)
    with pytest.raises(SanctionsPairsError, match="dev share"):
        stratified(small.pairs, 10, dev=1.0)
    with pytest.raises(SanctionsPairsError, match="sum to 1"):
        entity_disjoint(small.pairs, (0.5, 0.6))
