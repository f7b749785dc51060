"""Every claim runs from start to end at smoke scale and leaves its figure."""

import pytest

from fixedgraphdp import claims as module
from papers_shared.claims import collect, run

IDS = ("D1", "D2", "D3", "D4", "D5", "D6", "D7", "D8")


def test_every_claim_of_the_specification_is_there():
    assert tuple(found.id for found in collect(module)) == IDS


@pytest.mark.filterwarnings("ignore")
def test_claims_run_and_leave_figures(tmp_path):
    report = run("fixedgraphdp", out=tmp_path, scale="smoke", seeds=[0])
    for entry in report["claims"]:
        assert "error" not in entry["measured"], (entry["id"], entry["measured"])
        assert (tmp_path / entry["figure"]).stat().st_size > 1000
    always = {entry["id"]: entry["holds"] for entry in report["claims"]}
    assert always["D1"] is True
    assert always["D3"] is True
