"""Small stores that many tests share."""

import sys
from pathlib import Path

import pytest

from evalcards.generator import generate
from evalcards.store import Store

sys.path.append(str(Path(__file__).parent))  # for the module here that several test modules share


@pytest.fixture(scope="session")
def corpus():
    """A made-up corpus with planted truth, small."""
    return generate(60, 21, 450, seed=3)


@pytest.fixture(scope="session")
def store(corpus):
    """The corpus in a store with its signals; tests must not change it."""
    found = Store(None)
    found.add_cards(corpus.benchmark_cards())
    found.add(corpus.logs())
    found.signals()
    return found


def _record(
    score=0.5, *, model="example/one", name="MMLU", organisation="Example Board", relationship="third_party",
    arguments=None, metric=None, identity="r1", details=None, **more,
):  # fmt: skip
    """An EEE record of one result."""
    config = {"metric_id": "accuracy", "lower_is_better": False} | (metric or {})
    return {
        "schema_version": "0.3.0",
        "evaluation_id": identity,
        "retrieved_timestamp": "1764000000",
        "source_metadata": {
            "source_type": "documentation",
            "source_organization_name": organisation,
            "evaluator_relationship": relationship,
        },
        "model_info": {"name": model, "id": model, "additional_details": {}},
        "eval_library": {"name": "example", "version": "1"},
        "evaluation_results": [
            {
                "evaluation_name": name,
                "source_data": {"dataset_name": name, "source_type": "other"},
                "metric_config": config,
                "score_details": {"score": score},
                "generation_config": {"generation_args": arguments or {}, "additional_details": details or {}},
            }
        ],
    } | more


@pytest.fixture(scope="session")
def record():
    """A function that makes an EEE record."""
    return _record
