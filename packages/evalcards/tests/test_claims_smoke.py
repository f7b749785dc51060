"""Every claim runs from start to end at smoke scale and leaves its figure."""

from evalcards import claim_figures
from evalcards import claims as module
from papers_shared.claims import collect, run

IDS = ("E1", "E2", "E3", "E4", "E5", "E6", "E7")


def test_every_claim_of_the_specification_is_there():
    assert tuple(found.id for found in collect(module)) == IDS


def test_claims_run_and_leave_figures(tmp_path, monkeypatch):
    monkeypatch.setattr(claim_figures.shutil, "which", lambda _: None)  # screenshots are for the real run
    report = run("evalcards", out=tmp_path, scale="smoke", seeds=[0])
    for entry in report["claims"]:
        assert "error" not in entry["measured"], (entry["id"], entry["measured"])
        assert (tmp_path / entry["figure"]).stat().st_size > 1000
    held = {entry["id"]: entry["holds"] for entry in report["claims"]}
    assert held["E1"] is held["E2"] is held["E3"] is held["E5"] is True
    assert held["E4"] is held["E7"] is None
