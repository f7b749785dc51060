"""Figures equal scikit-learn's and scipy's; thresholds and intervals behave."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sanctionspairs_records import make_pair
from sklearn import metrics

from sanctionspairs.errors import SanctionsPairsError, ThresholdError
from sanctionspairs.evaluate import GRID, compare, confusion, ece, report, tune_threshold
from sanctionspairs.tags import TAGS, tag_errors, tags

scored = st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=4, max_size=60).filter(
    lambda rows: len({label for _, label in rows}) == 2
)


@settings(max_examples=20)
@given(scored, st.sampled_from(GRID))
def test_figures_equal_scikit_learns(rows, t):
    scores, labels = np.array([s for s, _ in rows]), np.array([y for _, y in rows])
    found = report(scores, labels, t, n_resamples=10)
    predicted = scores >= t
    assert found.f1.value == pytest.approx(metrics.f1_score(labels, predicted, zero_division=0))
    assert found.precision == pytest.approx(metrics.precision_score(labels, predicted, zero_division=0))
    assert found.recall == pytest.approx(metrics.recall_score(labels, predicted, zero_division=0))
    assert found.roc_auc == pytest.approx(metrics.roc_auc_score(labels, scores))
    assert found.pr_auc == pytest.approx(metrics.average_precision_score(labels, scores))
    assert found.brier == pytest.approx(metrics.brier_score_loss(labels, scores))
    tn, fp, fn, tp = metrics.confusion_matrix(labels, predicted).ravel()
    assert found.counts == (tp, fp, fn, tn)
    assert found.always_f1 == pytest.approx(metrics.f1_score(labels, np.ones_like(labels)))


@settings(max_examples=40)
@given(scored)
def test_the_tuned_threshold_is_the_first_best_of_the_grid(rows):
    scores, labels = np.array([s for s, _ in rows]), np.array([y for _, y in rows])
    f1 = [2 * (labels & (scores >= t)).sum() / (labels.sum() + (scores >= t).sum()) for t in GRID]
    threshold, best = tune_threshold(scores, labels)
    assert best == pytest.approx(max(f1))
    assert threshold == GRID[int(np.argmax(np.round(f1, 12)))]


def test_ece_is_the_weighted_gap_of_fifteen_bins():
    rng = np.random.default_rng(0)
    p, y = rng.random(500), rng.random(500) < 0.3
    total = 0.0
    for low in range(15):
        inside = (p >= low / 15) & (p < (low + 1) / 15)
        if inside.any():
            total += inside.mean() * abs(p[inside].mean() - y[inside].mean())
    assert ece(p, y) == pytest.approx(total)


def test_intervals_over_components_are_wider_when_errors_gather():
    rng = np.random.default_rng(1)
    group = np.repeat(np.arange(100), 20)
    bad = np.repeat(rng.random(100) < 0.2, 20)
    labels = np.ones(2000)
    scores = np.where(bad, 0.0, 1.0)
    apart = report(scores, labels, 0.5).f1
    together = report(scores, labels, 0.5, group).f1
    assert apart.value == together.value
    assert together.high - together.low > 2 * (apart.high - apart.low)
    assert together.low < together.value < together.high


def test_one_class_cannot_be_tuned():
    with pytest.raises(ThresholdError, match="threshold cannot be tuned: all 3 pairs are positive"):
        tune_threshold(np.array([0.1, 0.2, 0.9]), np.ones(3))
    with pytest.raises(ThresholdError, match="no judged pair"):
        tune_threshold(np.array([np.nan]), np.ones(1))


def test_no_answer_is_counted_and_is_not_a_negative():
    found = report(np.array([1.0, np.nan, 0.0]), np.array([1, 1, 0]), 0.5)
    assert (found.n, found.unanswered, found.counts.fn) == (2, 1, 0)
    with pytest.raises(SanctionsPairsError, match="no pair was answered"):
        report(np.array([np.nan]), np.array([1]), 0.5)


def test_mcnemar_and_yule_on_a_table_by_hand():
    truth = np.ones(40, bool)
    a, b = truth.copy(), truth.copy()
    a[:3] = False  # both wrong
    b[:3] = False
    b[3:12] = False  # nine more of b alone
    a[12:14] = False  # two of a alone
    found = compare(a, b, truth)
    assert (found.only_a_right, found.only_b_right) == (9, 2)
    assert found.p == pytest.approx(2 * sum([1, 11, 55]) / 2**11)
    assert found.yule_q == pytest.approx((3 * 26 - 9 * 2) / (3 * 26 + 9 * 2))
    assert found.oracle_f1 == pytest.approx(metrics.f1_score(truth, ~(~a & ~b)))
    assert compare(a, a, truth).p == 1.0


CASES = {
    "cross_script": ({"name": "Иван Петров"}, {"name": "Ivan Petrov"}),
    "non_latin": ({"name": "Иван Петров"}, {"name": "Иван П."}),
    "dob_conflict": ({"name": "A B", "birthDate": "1970-01-02"}, {"name": "C D", "birthDate": "1971"}),
    "dob_precision": ({"name": "A B", "birthDate": "1970-01-02"}, {"name": "C D", "birthDate": "1970"}),
    "id_conflict": ({"name": "A B", "idNumber": "12-34"}, {"name": "C D", "idNumber": "1235"}),
    "id_format": ({"name": "A B", "idNumber": "12-34"}, {"name": "C D", "idNumber": "1234"}),
    "number_in_name": ({"name": "School No 12"}, {"name": "School"}),
    "homonym": ({"name": "Ivan Petrov", "country": "ru"}, {"name": "IVAN PETROV", "country": "ua"}),
    "alias_only": ({"name": "Ivan Petrov", "alias": "The Fox"}, {"name": "the fox"}),
    "sparse": ({"name": "A B", "country": "ru"}, {"name": "A B", "country": "ru"}),
    "org_form": ({"name": "Alfa GmbH"}, {"name": "Alfa AG"}),
    "country_conflict": ({"name": "A B", "country": "ru"}, {"name": "C D", "country": ["ua", "de"]}),
}


@pytest.mark.parametrize("name", CASES)
def test_each_tag_says_what_it_means(name):
    schema = "Company" if name == "org_form" else "Person"
    assert name in tags(make_pair(*CASES[name], schema=schema))
    same = {"name": "Ivan Petrov", "birthDate": "1970-01-02", "idNumber": "1234", "country": "ru"}
    assert tags(make_pair(same, same)) == ()
    assert name in TAGS


def test_tags_do_not_depend_on_the_order(small):
    from sanctionspairs.records import Pair

    for pair in small.pairs[:300]:
        assert tags(pair) == tags(Pair(pair.right, pair.left, pair.judgement))


def test_error_lifts_are_ratios_of_rates_and_few_errors_are_undetermined():
    numbered = [make_pair({"name": f"Alfa {i}"}, {"name": f"Alfa {i + 1}"}, "negative") for i in range(10)]
    plain = [make_pair({"name": "Beta"}, {"name": f"Gamma {'x' * i}"}, "negative") for i in range(30)]
    predicted = np.array([1] * 8 + [0] * 2 + [1] * 4 + [0] * 26)
    table = tag_errors([*numbered, *plain], predicted)
    row = table.loc["number_in_name"]
    assert (row.pairs, row.negatives, row.fp, row.fn) == (10, 10, 8, 0)
    assert row.fp_lift == pytest.approx((8 / 10) / (12 / 40))
    assert np.isnan(row.fn_lift)
    few = tag_errors([*numbered, *plain], np.array([1] * 4 + [0] * 36))
    assert np.isnan(few.loc["number_in_name"].fp_lift)


def test_confusion_counts():
    assert confusion(np.array([1, 1, 0, 0]), np.array([1, 0, 1, 0])) == (1, 1, 1, 1)
