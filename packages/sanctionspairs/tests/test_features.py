"""The batched production model equals the library, pair by pair."""

import random

import numpy as np
import pytest
from nomenklatura.matching import RegressionV1
from nomenklatura.matching.types import ScoringConfig

from sanctionspairs.features import ADDRESS_NUMBERS, FEATURES, Encoder
from sanctionspairs.records import Pair, common_schema, entity
from sanctionspairs.regression import Regression

EXTRA = [
    {"address": ["12 High Street 7", "Flat 3, 12 High Street"], "phone": ["+4412345"], "email": ["a@b.example"]},
    {"address": ["12 High Street"], "birthDate": ["1970-03-02"], "gender": ["male"]},
    {"birthDate": ["1970-02-03", "1971"], "gender": ["female"], "address": ["7 Other Road"]},
    {"birthDate": ["1970-03"], "firstName": ["Иван"], "lastName": ["Ли"], "birthPlace": ["Nizhny Novgorod"]},
    {"name": ["Mr. Ivan O'Neill-Smith", "ИВАН"], "alias": ["Ivan 2 Grozny 17"], "weakAlias": ["Vanya"]},
]


def random_pairs(small, count=1000, seed=0):
    """Pair records at random within compatible schemata, some with extra values, some against other kinds."""
    rng = random.Random(seed)
    records = small.entities
    people = [record for record in records if record.schema.name == "Person"]
    pairs = []
    while len(pairs) < count:
        left, right = rng.choice(records), rng.choice(records)
        if rng.random() < 0.4:
            pair = rng.choice(small.pairs)
            left, right = pair.left, pair.right
        elif rng.random() < 0.3:
            sides = []
            for _ in range(2):
                data = rng.choice(people).to_dict()
                data["properties"] = {**data["properties"], **rng.choice(EXTRA), **rng.choice(EXTRA)}
                sides.append(entity({**data, "id": f"{data['id']}-{rng.random()}"}))
            left, right = sides
        if common_schema(left, right) is not None and left.id != right.id:
            pairs.append(Pair(left, right, "positive"))
    return pairs


@pytest.fixture(scope="module")
def pairs(small):
    return random_pairs(small)


def test_batch_equals_the_library_on_a_thousand_random_pairs(pairs):
    config = ScoringConfig.defaults()
    literal = np.array([RegressionV1.compare(pair.left, pair.right, config).score for pair in pairs])
    assert np.abs(Regression().score(pairs) - literal).max() <= 1e-12


def test_every_feature_equals_the_librarys(pairs):
    literal = np.array([RegressionV1.encode_pair(pair.left, pair.right) for pair in pairs])
    assert np.array_equal(Encoder().encode(pairs), literal)
    fired = (literal != 0).mean(axis=0)
    assert (fired > 0).all(), [name for name, share in zip(FEATURES, fired, strict=True) if not share]


def test_only_address_numbers_depend_on_the_order(pairs):
    encoder = Encoder()
    swapped = encoder.encode([Pair(pair.right, pair.left) for pair in pairs])
    rows = encoder.encode(pairs)
    others = np.arange(rows.shape[1]) != ADDRESS_NUMBERS
    assert np.array_equal(rows[:, others], swapped[:, others])
    differ = rows[:, ADDRESS_NUMBERS] != swapped[:, ADDRESS_NUMBERS]
    assert differ.any()
    matcher, both = Regression(), Regression(symmetric=True)
    back = [Pair(pair.right, pair.left) for pair in pairs]
    assert np.array_equal(both.score(pairs), both.score(back))
    assert np.array_equal(both.score(pairs), np.maximum(matcher.score(pairs), matcher.score(back)))


def test_contributions_sum_to_the_logit(pairs):
    matcher = Regression()
    for pair in pairs[:20]:
        score = matcher.score([pair])[0]
        assert sum(matcher.explain(pair).values()) == pytest.approx(np.log(score / (1 - score)))


def test_a_record_that_changes_under_its_id_is_read_again():
    matcher = Regression()
    old = entity({"id": "x", "schema": "Person", "properties": {"name": ["Ivan Petrov"]}})
    new = entity({"id": "x", "schema": "Person", "properties": {"name": ["Somebody Else"]}})
    other = entity({"id": "y", "schema": "Person", "properties": {"name": ["Ivan Petrov"]}})
    first, second = matcher.score([Pair(old, other)])[0], matcher.score([Pair(new, other)])[0]
    assert first > second
    assert second == Regression().score([Pair(new, other)])[0]


def test_a_date_on_which_the_library_fails_counts_as_absent():
    sides = [
        entity({"id": i, "schema": "Person", "properties": {"name": ["Ivan"], "birthDate": [date]}})
        for i, date in (("a", "1970.03.02"), ("b", "1970-02-03"))
    ]
    with pytest.raises(ValueError, match="unpack"):
        RegressionV1.compare(*sides, ScoringConfig.defaults())
    assert 0 < Regression().score([Pair(*sides)])[0] < 1


def test_a_stream_gives_the_same_scores_as_one_batch(pairs, monkeypatch):
    monkeypatch.setattr("sanctionspairs.regression.CHUNK", 7)
    chunks = list(Regression().stream(iter(pairs[:40])))
    assert [len(chunk) for chunk in chunks] == [7, 7, 7, 7, 7, 5]
    assert np.allclose(np.concatenate(chunks), Regression().score(pairs[:40]), atol=1e-12)


def test_a_name_floor_keeps_an_equal_birth_date_from_deciding():
    same_date = [
        entity({"id": i, "schema": "Person", "properties": {"name": [n], "birthDate": ["1970-03-02"]}})
        for i, n in (("a", "Ivan Petrov"), ("b", "Quentin Underwood"))
    ]
    short = [entity({"id": i, "schema": "Person", "properties": {"name": ["Usama"]}}) for i in "ab"]
    plain, floored = Regression(), Regression(name_floor=0.8)
    assert plain.score([Pair(*same_date)])[0] > 0.25 > floored.score([Pair(*same_date)])[0]
    assert floored.score([Pair(*short)])[0] > plain.score([Pair(*short)])[0]
    office = [entity({"id": i, "schema": "Occupancy", "properties": {"holder": ["Q1"]}}) for i in "ab"]
    assert floored.score([Pair(*office)])[0] == plain.score([Pair(*office)])[0]


def test_refitting_learns_and_needs_both_judgements(small):
    matcher = Regression(refit=True)
    assert not matcher.trained
    with pytest.raises(ValueError, match="not trained"):
        matcher.score(small.pairs[:2])
    with pytest.raises(ValueError, match="cannot be tuned"):
        matcher.fit([pair for pair in small.pairs if pair.label])
    fitted = matcher.fit(small.pairs)
    labels = np.array([pair.label for pair in small.pairs])
    scores = fitted.score(small.pairs)
    assert scores[labels == 1].mean() > scores[labels == 0].mean() + 0.2
