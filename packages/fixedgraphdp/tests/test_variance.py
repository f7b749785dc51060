"""The one-pass variance is right: exact reference, invariants, library."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixedgraphdp.baselines import METHODS
from fixedgraphdp.variance import empty, merge, update
from fixedgraphdp.variance_reference import exact_variance

values = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=40).map(np.array)


@given(values)
def test_equals_the_definition_in_exact_arithmetic(x):
    assert update(empty(), x).variance == pytest.approx(exact_variance(x), rel=1e-9, abs=1e-12 * np.max(x**2))


@given(values, st.integers(0, 40))
def test_chunks_do_not_matter(x, cut):
    whole, parts = update(empty(), x), merge(update(empty(), x[:cut]), update(empty(), x[cut:]))
    assert parts.count == whole.count
    assert parts.mean == pytest.approx(whole.mean, rel=1e-9, abs=1e-9)
    assert parts.m2 == pytest.approx(whole.m2, rel=1e-9, abs=1e-3)


def test_keeps_its_digits_where_the_textbook_formula_loses_them():
    x = 1e9 + np.arange(1000.0)
    exact = exact_variance(x)
    assert update(empty(), x).variance == pytest.approx(exact, rel=1e-12)
    assert METHODS["two passes"](x) == pytest.approx(exact, rel=1e-12)
    assert METHODS["sum of squares"](x) != pytest.approx(exact, rel=1e-6)


def test_no_value_and_one_value_have_no_variance():
    assert np.isnan(empty().variance)
    assert np.isnan(update(empty(), np.array([3.0])).variance)


def test_a_value_that_is_not_finite_is_named():
    with pytest.raises(ValueError, match="position 1"):
        update(empty(), np.array([1.0, np.inf]))
