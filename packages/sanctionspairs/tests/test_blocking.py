"""Candidates: the fast path equals the literal one, common keys lose nobody, quality is counted right."""

import numpy as np
import pyarrow.parquet as pq
import pytest
from sanctionspairs_records import make

from sanctionspairs.baselines import all_pairs
from sanctionspairs.blocking import BlockingStats, candidates, keys_of, quality, true_pairs, write_partitions
from sanctionspairs.blocking_reference import literal_candidates
from sanctionspairs.errors import SanctionsPairsError


@pytest.mark.parametrize(("k", "max_block"), [(50, 200), (3, 200), (5, 6), (2, 3)])
def test_equals_the_literal_version(small, k, max_block):
    records = small.entities[:300]
    assert list(map(tuple, candidates(records, k, max_block).tolist())) == literal_candidates(records, k, max_block)


def test_finds_nearly_all_true_pairs_of_a_simulation(small):
    records = small.entities
    found = quality(candidates(records), [small.truth[str(record.id)] for record in records])
    assert found.completeness >= 0.97
    assert found.reduction >= 0.95


def test_quality_counts_pairs():
    truth = ["a", "a", "b", "a", "b", "c"]
    assert true_pairs(truth).tolist() == [[0, 1], [0, 3], [1, 3], [2, 4]]
    found = quality(np.array([[0, 1], [2, 4], [0, 5]]), truth)
    assert found == (0.5, 1 - 3 / 15, 3)
    small_all = [make(f"x{i}", name="A") for i in range(4)]
    assert quality(all_pairs(small_all), [1, 1, 2, 2]).completeness == 1


def test_a_common_key_drops_nobody():
    common = [make(f"i{n}", name="Ivan") for n in range(30)]
    twins = [make(f"t{n}", name="Ivan Petrov Common") for n in range(2)]
    fillers = [make(f"f{n}", name=f"Ivan Petrov {'abcdefghij'[n % 10]}{n}") for n in range(30)]
    stats = BlockingStats()
    records = [*common, *twins, *fillers]
    found = candidates(records, k=50, max_block=10, stats=stats)
    assert stats.split >= 2
    assert stats.windowed >= 1
    assert set(found.ravel().tolist()) == set(range(len(records)))
    assert [30, 31] in found.tolist()


def test_records_of_schemata_that_exclude_each_other_are_no_candidates():
    records = [
        make("p", "Person", name="Sea Star"),
        make("v", "Vessel", name="Sea Star"),
        make("c", "Vessel", name="Sea Star"),
    ]
    assert candidates(records).tolist() == [[1, 2]]


@pytest.mark.parametrize(
    ("left", "right", "key"),
    [
        ({"name": "Владимир"}, {"name": "Vladimir"}, "t:vladimir"),
        ({"name": "Mohammad"}, {"name": "Muhamad"}, "s:MHMT"),
        ({"name": "Xavier", "idNumber": "77-12 333"}, {"name": "Other", "idNumber": "7712333"}, "i:7712333"),
        ({"name": "Ivanka", "birthDate": "1970-01-02"}, {"name": "Ivano", "birthDate": "1970"}, "y:iva:1970"),
        ({"name": "A", "phone": "+441234"}, {"name": "B", "phone": "+441234"}, "p:+441234"),
    ],
)
def test_each_kind_of_key_joins_what_it_should(left, right, key):
    a, b = make("a", **left), make("b", **right)
    assert key in set(keys_of(a)) & set(keys_of(b))
    assert candidates([a, b, make("c", name="Zzz Yyy")]).tolist() == [[0, 1]]


def test_offices_meet_by_whom_they_refer_to():
    records = [make("a", "Occupancy", holder="Q1", post="Q2"), make("b", "Occupancy", holder="Q1", post="Q9")]
    assert candidates([*records, make("c", "Occupancy", holder="Q3")]).tolist() == [[0, 1]]


def test_few_records_and_bad_settings():
    assert candidates([]).shape == candidates([make("a", name="A")]).shape == (0, 2)
    with pytest.raises(SanctionsPairsError, match="max_block"):
        candidates([make("a", name="A")], max_block=1)


def test_each_key_is_wholly_in_one_part(small, tmp_path):
    records = small.entities[:60]
    paths = write_partitions(iter(records), tmp_path / "parts", parts=4, rows=50)
    tables = [pq.read_table(path).to_pylist() for path in paths]
    keys = [{row["key"] for row in table} for table in tables]
    assert sum(map(len, keys)) == len(set().union(*keys))
    assert sum(map(len, tables)) == sum(len(keys_of(record)) for record in records)
