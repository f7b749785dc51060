"""What is the same: models, benchmarks, units and protocols join only where somebody said so."""

import pytest

from evalcards.errors import UnknownModel
from evalcards.identity import ModelIndex, parse_model, route_id, slug
from evalcards.schema import BenchmarkCard, ModelMeta, read_log
from evalcards.store import Store


def test_units_and_protocols_never_join(record):
    logs = [
        record(0.7, metric={"metric_unit": "proportion"}, identity="a"),
        record(70.0, metric={"metric_unit": "percent"}, identity="b"),
        record(0.6, metric={"metric_unit": "proportion"}, identity="c", details={"num_fewshot": "5"}),
        record(0.61, metric={"metric_unit": "proportion"}, identity="d", name="mmlu"),
    ]
    with Store(None) as store:
        store.add([read_log(log) for log in logs])
        assert sorted(t.rows for t in store.triples()) == [1, 1, 2]


def test_names_join_only_by_registration(record):
    names = ["HuggingFaceTB/SmolLM2-135M-Instruct", "huggingfacetb/smollm2_135m_instruct", "local-name", "other"]
    with Store(None) as store:
        store.add([read_log(record(0.5, model=name, identity=name)) for name in names])
        assert len({t.model for t in store.triples()}) == 4
        store.add_models([ModelMeta(id=names[0], aliases=["local-name"])])
        assert {t.model for t in store.triples()} == {names[0], "other"}
        assert store.model("local-name")["id"] == names[0]
        assert store.model("HuggingFaceTB__SmolLM2-135M-Instruct")["id"] == names[0]
        with pytest.raises(UnknownModel, match="did you mean"):
            store.model("smollm2-135m")


def test_model_names_are_taken_apart():
    assert parse_model("a/b-20250102-high") == ("a/b-20250102-high", "a/b", "20250102", "high", "a")
    assert parse_model("a/b-20250102").qualifier is None
    assert parse_model("a/b-2025").variant_date is None
    assert route_id("a/b") == "a__b"
    index = ModelIndex(["A/b-1", "a/B1"], {"x": "A/b-1"})
    assert index.resolve("x") == ("A/b-1", "alias")
    assert index.resolve("A/b-1") == ("A/b-1", "exact")
    assert index.resolve("a/b_1")[1] == "unresolved"  # two registered ids fold to it


@pytest.mark.parametrize(
    "name", ["C", "C++", "C#", "../../etc/passwd", "<script>alert(1)</script>", "日本語", "", "a" * 500]
)
def test_slugs_hold_nothing_but_plain_letters(name):
    assert all(c in "abcdefghijklmnopqrstuvwxyz0123456789_-" for c in slug(name))
    assert 0 < len(slug(name)) < 100
    assert slug("C") != slug("C++") != slug("C#")


def test_cards_move_rows_to_their_benchmark(record):
    with Store(None) as store:
        store.add([read_log(record(name="hendrycks_anatomy"))])
        store.add_cards(
            [BenchmarkCard.model_validate({"benchmark_details": {"name": "MMLU"}, "aliases": ["hendrycks"]})]
        )
        triple = store.triples()[0]
        assert triple.benchmark == "mmlu"
        assert "/anatomy@" in triple.path
