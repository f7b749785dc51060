"""The claims run end to end at the smallest scale."""

import pytest

from papers_shared import claims


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return claims.run("evalcards", out=tmp_path_factory.mktemp("claims"), scale="smoke", seeds=[0, 1])


def test_every_claim_is_measured_and_drawn(report):
    assert [entry["id"] for entry in report["claims"]] == ["C1"]
    assert all("error" not in entry["measured"] for entry in report["claims"])
    assert all(entry["figure"] for entry in report["claims"])
