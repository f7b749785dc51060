"""The batched production model against the library's loop, and every matcher on the same pairs."""

import random
import resource
import subprocess
import sys
import time

import numpy as np
import pytest
from nomenklatura.matching import RegressionV1
from nomenklatura.matching.types import ScoringConfig

from sanctionspairs import data, get
from sanctionspairs.evaluate import labels_of, report, tune_threshold
from sanctionspairs.records import Pair, common_schema
from sanctionspairs.regression import Regression
from sanctionspairs.split import components, entity_disjoint
from sanctionspairs.study import FUZZY_GRID

CONFIG = ScoringConfig.defaults()


def library_loop(pairs):
    return np.array([RegressionV1.compare(pair.left, pair.right, CONFIG).score for pair in pairs])


def fresh_batch(pairs):
    """Score with an encoder that remembers nothing yet."""
    return Regression().score(pairs)


@pytest.fixture(scope="module")
def unique():
    """2,000 pairs in which no record occurs twice."""
    seen, chosen = set(), []
    for pair in data.default().pairs:
        if pair.left.id not in seen and pair.right.id not in seen:
            seen |= {pair.left.id, pair.right.id}
            chosen.append(pair)
    return chosen[:2000]


@pytest.fixture(scope="module")
def repeated():
    """2,000 pairs of 400 records: each occurs ten times."""
    rng = random.Random(0)
    people = [record for record in data.default().entities if record.schema.name == "Person"][:400]
    pairs = []
    while len(pairs) < 2000:
        left, right = rng.sample(people, 2)
        if common_schema(left, right):
            pairs.append(Pair(left, right))
    return pairs


@pytest.mark.benchmark(group="regression-v1, 2,000 pairs, no record twice")
def test_batch_unique(benchmark, unique):
    library_loop(unique[:20])
    found = benchmark.pedantic(fresh_batch, (unique,), rounds=3)
    benchmark.extra_info.update(
        label="batch", target=">= 2.5x the peer", largest_difference=float(np.abs(found - library_loop(unique)).max())
    )


@pytest.mark.benchmark(group="regression-v1, 2,000 pairs, no record twice")
def test_loop_unique(benchmark, unique):
    benchmark.pedantic(library_loop, (unique,), rounds=2)
    benchmark.extra_info.update(role="peer", label="RegressionV1.compare in a loop")


@pytest.mark.benchmark(group="regression-v1, 2,000 pairs of 400 records")
def test_batch_repeated(benchmark, repeated):
    benchmark.pedantic(fresh_batch, (repeated,), rounds=3)
    benchmark.extra_info.update(label="batch", target=">= 4x the peer")


@pytest.mark.benchmark(group="regression-v1, 2,000 pairs of 400 records")
def test_loop_repeated(benchmark, repeated):
    benchmark.pedantic(library_loop, (repeated,), rounds=2)
    benchmark.extra_info.update(role="peer", label="RegressionV1.compare in a loop")


STREAM = """
import resource
from sanctionspairs.records import Pair, entity
from sanctionspairs.regression import Regression

def pairs(n):
    for i in range(n):
        name = f"Name{i % 5003} Family{i % 997}"
        sides = [entity({"id": f"{s}{i}", "schema": "Person", "properties": {"name": [name],
                 "birthDate": [str(1940 + i % 60)], "country": ["ru"]}}) for s in "lr"]
        yield Pair(*sides)

for _ in Regression().stream(pairs(COUNT)):
    pass
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
"""


@pytest.mark.benchmark(group="regression-v1, 200,000 pairs streamed")
def test_stream(benchmark):
    peaks = []

    def stream():
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", STREAM.replace("COUNT", "200_000")],
            capture_output=True,
            text=True,
            check=True,
        )
        peaks.append(float(done.stdout))

    benchmark.pedantic(stream, rounds=1)
    benchmark.extra_info.update(label="stream", target="<= 1.5 GB for any length", peak_GB=max(peaks))


MATCHERS = (
    "always",
    "fuzzy",
    "name-qualified",
    "logic-v2",
    "er-unstable",
    "regression-v1",
    "regression-v1-refit",
    "pairnet",
    "cascade",
    "splink",
)


@pytest.fixture(scope="module")
def parts():
    train, val, test = entity_disjoint(data.default().pairs)
    return train, val, test[:2000]


@pytest.mark.benchmark(group="matchers, 2,000 unseen pairs")
@pytest.mark.parametrize("name", MATCHERS)
def test_matcher(benchmark, parts, name):
    train, val, test = parts
    matcher = get(name)
    if not matcher.trained:
        matcher.fit(val if name == "cascade" else train)
    grid = FUZZY_GRID if name == "fuzzy" else None
    threshold = tune_threshold(matcher.score(val), labels_of(val), grid)[0]
    scores = benchmark.pedantic(matcher.score, (test,), rounds=1)
    found = report(scores, labels_of(test), threshold, components(test), n_resamples=500)
    info = {"F1": found.f1.value, "precision": found.precision, "recall": found.recall, "threshold": threshold}
    if name == "regression-v1":
        half = report(scores, labels_of(test), 0.5, components(test), n_resamples=50)
        info["F1 at 0.5"] = half.f1.value
    benchmark.extra_info.update(label=name, **info)
    if name == "splink":
        benchmark.extra_info["role"] = "peer"


@pytest.mark.benchmark(group="the demo: 20,000 pairs, regression-v1 and pairnet")
def test_demo(benchmark, tmp_path):
    def demo():
        command = [
            sys.executable,
            "-W",
            "ignore",
            "-c",
            "from sanctionspairs.cli import app; app()",
            "matchpairs",
            "--demo",
            "--dev",
            "0.2",
        ]
        subprocess.run(
            [*command, "--matcher", "regression-v1", "--out", str(tmp_path / f"{time.monotonic_ns()}")],
            check=True,
            capture_output=True,
        )
        subprocess.run(
            [*command, "--matcher", "pairnet", "--out", str(tmp_path / f"{time.monotonic_ns()}")],
            check=True,
            capture_output=True,
        )

    benchmark.pedantic(demo, rounds=1)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    benchmark.extra_info.update(label="matchpairs", target="<= 4 min", peak_GB=peak)
