"""Signal 3: who measured, and for which risks."""

import pytest
from any_rows import few, rows_strategy
from hypothesis import given

from evalcards.signals import (
    organisation,
    provenance,
    risk_domains,
)


@few
@given(rows_strategy)
def test_provenance_counts_named_organisations(rows):
    names = {
        " ".join(n.split()).lower()
        for r in rows
        if (n := r["source_metadata"]["source_organization_name"]) and n.strip()
    }
    for given_row, found in zip(rows, provenance(rows), strict=True):
        relation = given_row["source_metadata"]["evaluator_relationship"]
        assert found.source_type == ("unspecified" if relation in (None, "other") else relation)
        assert found.is_multi_source == (len(names) > 1)
        assert found.first_party_only == (relation == "first_party" and len(names) == 1)
        assert found.distinct_organisations == len(names)


def test_organisations_differ_in_more_than_case_and_spaces():
    assert organisation("  Example \t Lab ") == "example lab"
    assert organisation("Example-Lab") != organisation("Example Lab")
    assert organisation(" ") is organisation(None) is organisation(3) is None


@pytest.mark.parametrize(
    ("name", "domain"),
    [
        ("Membership inference attack", "privacy"), ("Jailbreaking", "cyber security and misuse"),
        ("Harmful code generation", "cyber security and misuse"), ("Decision bias", "bias and fairness"),
        ("Toxic output", "toxicity and harmful content"), ("Over- or under-reliance", "misinformation"),
        ("Data acquisition restrictions", "legal and intellectual property"), ("Non-disclosure", "transparency"),
        ("Generated content ownership and IP", "legal and intellectual property"),
        ("Lack of testing diversity", "robustness and reliability"), ("Misaligned actions", "autonomy and agents"),
        ("Impact on affected communities", "society and environment"), ("Data leakage", "privacy"),
    ],
)  # fmt: skip
def test_names_of_the_ibm_risk_atlas_are_accepted(name, domain):
    assert risk_domains({"possible_risks": [name]}) == (domain,)


def test_risks_fall_into_domains_and_none_is_lost():
    card = {"possible_risks": [{"category": "Output bias"}, {"category": "Membership inference attack"}, "moon dust"]}
    assert risk_domains(card) == ("bias and fairness", "privacy", "other")
    assert risk_domains({"possible_risks": "Spreading toxicity and hallucination"}) == (
        "toxicity and harmful content", "misinformation",
    )  # fmt: skip
    assert risk_domains(None) == risk_domains({}) == ()
