"""bench.json keeps the medians and the ratio to the peer of the same group."""

import pytest

from bench import compact, seconds, table


def entry(name, group, median, **extra):
    stats = {"median": median, "q1": median * 0.9, "q3": median * 1.1, "rounds": 5}
    return {"name": name, "group": group, "stats": stats, "extra_info": extra}


RAW = {
    "benchmarks": [
        entry("test_fast", "edit", 0.5, target="<= 0.9"),
        entry("test_slow", "edit", 1.0, role="peer", label="AREdit"),
        entry("test_lone", None, 0.002),
    ]
}


def test_ratios_are_to_the_peer_of_the_group():
    edit, lone = compact(RAW)
    assert edit["group"] == "edit"
    assert edit["benchmarks"][0]["ratio_to_peer"] == 0.5
    assert edit["benchmarks"][0]["measured"] == {"target": "<= 0.9"}
    assert edit["benchmarks"][1]["name"] == "AREdit"
    assert "ratio_to_peer" not in edit["benchmarks"][1]
    assert lone["group"] == "test_lone"


def test_the_table_has_a_row_per_benchmark():
    lines = table(compact(RAW)).splitlines()
    assert lines[2] == "| edit | fast | 500 ms | 0.5 | target <= 0.9 |"
    assert lines[3] == "| edit | AREdit | 1 s | peer |  |"


@pytest.mark.parametrize(("value", "text"), [(2.0, "2 s"), (0.0123, "12.3 ms"), (4.5e-5, "45 µs"), (3e-9, "3 ns")])
def test_durations_read_well(value, text):
    assert seconds(value) == text
