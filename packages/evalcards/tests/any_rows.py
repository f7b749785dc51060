"""Rows of any kind, for properties that hold of all of them."""

import math

from hypothesis import settings
from hypothesis import strategies as st

from evalcards.signals import SETUP_FIELDS

values = st.one_of(st.none(), st.booleans(), st.floats(0, 2), st.integers(0, 5), st.sampled_from(["", "a", "b"]))
arguments = st.dictionaries(
    st.sampled_from([*SETUP_FIELDS, "eval_plan", "eval_limits", "harness", "other"]), values, max_size=6
)
scores = st.one_of(
    st.floats(-1, 2, allow_nan=False),
    st.integers(0, 1),
    st.none(),
    st.just(math.nan),
    st.just(math.inf),
    st.booleans(),
    st.sampled_from([0.25, 0.3, 0.7, 0.75]),
)
parties = st.sampled_from([None, "", "A Lab", "a  lab", " B Lab", "C"])
relations = st.sampled_from(["first_party", "third_party", "collaborative", "other", None])
row = st.builds(
    lambda i, s, a, p, r: {
        "evaluation_id": f"e{i}", "score": s, "generation_args": a,
        "source_metadata": {"source_organization_name": p, "evaluator_relationship": r},
    },
    st.integers(0, 50), scores, arguments, parties, relations,
)  # fmt: skip
few = settings(max_examples=50)
rows_strategy = st.lists(row, max_size=7, unique_by=lambda r: r["evaluation_id"])
