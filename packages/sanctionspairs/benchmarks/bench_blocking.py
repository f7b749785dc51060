"""Blocking at scale, and against the indexes that people use instead."""

import json
import subprocess
import sys

import pytest

from sanctionspairs.baselines import all_pairs, nomenklatura_candidates, splink_candidates
from sanctionspairs.blocking import candidates, quality
from sanctionspairs.simulate import simulate_records

SCALE = """
import json, resource, time
from sanctionspairs.simulate import simulate_records
from sanctionspairs.%s import %s as find
from sanctionspairs.blocking import quality
records, truth = simulate_records(%d, seed=1)
base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
begun = time.perf_counter()
found = find(records)
seconds = time.perf_counter() - begun
q = quality(found, truth)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
print(json.dumps({"seconds": seconds, "records_GB": base, "peak_GB": peak,
                  "candidates": q.candidates, "completeness": q.completeness, "reduction": q.reduction}))
"""


def at_scale(module, function, n):
    code = SCALE % (module, function, n)
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.benchmark(group="blocking 100,000 records")
def test_ours(benchmark):
    found = {}
    benchmark.pedantic(lambda: found.update(at_scale("blocking", "candidates", 100_000)), rounds=1)
    benchmark.extra_info.update(
        label="candidates (with making the records)", target="blocking < 3 min, < 3 GB", **found
    )


@pytest.mark.benchmark(group="blocking 100,000 records")
def test_splink(benchmark):
    found = {}
    benchmark.pedantic(lambda: found.update(at_scale("baselines", "splink_candidates", 100_000)), rounds=1)
    benchmark.extra_info.update(role="peer", label="splink's rules in DuckDB (with making the records)", **found)


@pytest.fixture(scope="module")
def two_thousand():
    return simulate_records(2000, seed=2)


@pytest.mark.benchmark(group="blocking 2,000 records")
@pytest.mark.parametrize(
    "find", [candidates, nomenklatura_candidates, splink_candidates, all_pairs], ids=lambda f: f.__name__
)
def test_small(benchmark, two_thousand, find):
    records, truth = two_thousand
    found = quality(benchmark.pedantic(find, (records,), rounds=1), truth)
    benchmark.extra_info.update(
        label=find.__name__, completeness=found.completeness, reduction=found.reduction, candidates=found.candidates
    )
    if find is nomenklatura_candidates:
        benchmark.extra_info["role"] = "peer"
