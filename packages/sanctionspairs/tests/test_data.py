"""The embedded default matches the paper's facts and its truth; the generator repeats; hard pairs are what they say."""

import numpy as np
import pytest
from rigour.ids import get_identifier_format

from sanctionspairs import data
from sanctionspairs.report import corpus_facts
from sanctionspairs.sim_names import LOCALES, imo_number
from sanctionspairs.simulate import FACTS, MOST_PAIRS, simulate
from sanctionspairs.split import components
from sanctionspairs.text import dominant_script, numbers, org_forms, tokens


def test_the_embedded_pairs_have_the_papers_facts(embedded):
    assert len(embedded.pairs) == 20_000
    for name, (paper, here) in corpus_facts(embedded.pairs).items():
        tolerance = 1.0 if "median" in name else 0.15 if "mean" in name else 0.025
        assert here == pytest.approx(paper, abs=tolerance), name


def test_judgements_are_the_truth_and_components_are_small(embedded):
    for pair in embedded.pairs:
        same = embedded.truth[str(pair.left.id)] == embedded.truth[str(pair.right.id)]
        assert same == bool(pair.label)
    group = components(embedded.pairs)
    assert np.bincount(group).max() <= MOST_PAIRS
    keys = {frozenset((pair.left.id, pair.right.id)) for pair in embedded.pairs}
    assert len(keys) == len(embedded.pairs)


def test_all_nineteen_languages_and_their_scripts_occur(small, embedded):
    assert len(LOCALES) == 19
    scripts = {dominant_script(name) for record in embedded.entities for name in record.get("name", quiet=True)}
    assert {
        "Latin",
        "Cyrillic",
        "Arabic",
        "Greek",
        "Han",
        "Hangul",
        "Hebrew",
        "Devanagari",
        "Thai",
        "Georgian",
        "Armenian",
    } <= scripts


def test_the_simulation_repeats(small):
    again = simulate(800, seed=7)
    assert [pair.to_dict() for pair in again.pairs] == [pair.to_dict() for pair in small.pairs]
    assert again.truth == small.truth
    positives = np.mean([pair.label for pair in small.pairs])
    assert positives == pytest.approx(FACTS["positive share"], abs=0.01)


def test_imo_numbers_have_their_check_digit():
    import random

    checker = get_identifier_format("imo")
    rng = random.Random(0)
    assert all(checker.is_valid(imo_number(rng)) for _ in range(50))


def test_written_files_are_read_back(tmp_path):
    paths = data.write_default(tmp_path / "sim", 100, 5)
    assert [path.name for path in paths] == [data.PAIRS, data.TRUTH]
    with pytest.raises(ValueError, match="already exists"):
        data.write_default(tmp_path / "sim", 100, 5)


def test_three_hundred_hard_pairs_of_both_kinds():
    pairs, reasons = data.hard_pairs(), data.hard_reasons()
    assert len(pairs) == len(reasons) == 300
    assert 0.4 < np.mean([pair.label for pair in pairs]) < 0.6
    assert all(reasons)


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("Ivan", "Latin"),
        ("Иван Ivan Петров", "Cyrillic"),
        ("山田たろう", "Han"),
        ("123", None),
        ("김 Kim 철수 박", "Hangul"),
    ],
)
def test_the_dominant_script_has_most_letters(text, script):
    assert dominant_script(text) == script


def test_numbers_tokens_and_legal_forms():
    assert numbers("School No 012 IV") == {"12", "4"}
    assert numbers("Ivan") == frozenset()
    assert tokens("Владимир O'Neill-Smith") == ["vladimir", "oneill", "smith"] or "vladimir" in tokens("Владимир")
    assert org_forms("Alfa Ltd") == org_forms("Alfa Limited")
    assert org_forms("Alfa GmbH") != org_forms("Alfa AG")
