"""The claims run from end to end on a small random model: their machinery is tested here, not their truth."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from bitresedit import claims
from bitresedit.backbones.scene_var import SceneVAR
from bitresedit.probe import Probe
from papers_shared.claims import Context, collect, run
from papers_shared.errors import InputError


@pytest.fixture
def small_world(monkeypatch, scene_model):
    monkeypatch.setattr(SceneVAR, "load_default", classmethod(lambda cls: scene_model))
    monkeypatch.setattr(Probe, "load_default", classmethod(lambda cls: cls().eval()))


def test_all_claims_run_and_draw_their_figures(small_world, tmp_path):
    report = run("bitresedit", out=tmp_path, scale="smoke", seeds=(0,))
    entries = {entry["id"]: entry for entry in report["claims"]}
    assert list(entries) == [f"B{i}" for i in range(1, 8)]
    for entry in entries.values():
        assert "error" not in entry["measured"], entry
        assert isinstance(entry["holds"], bool)
        assert (tmp_path / entry["figure"]).stat().st_size > 5000
    # Two claims hold whatever the model is worth: they are about the method's arithmetic.
    assert entries["B6"]["holds"]
    assert entries["B6"]["measured"]["largest_difference"] == 0
    assert entries["B5"]["measured"]["largest_kl_minus_delta"] <= 1e-6


def rows(method, ids, values):
    return pd.DataFrame({"method": method, "id": ids, "seed": 0, "score": values})


def test_comparisons_are_paired_by_item_whatever_the_order():
    rng = np.random.default_rng(0)
    ids, values = [f"i{n}" for n in range(30)], rng.normal(size=30) * 10
    shuffled = rng.permutation(30)
    ours = rows("a", [ids[i] for i in shuffled], values[shuffled] + 1 + rng.normal(size=30) * 0.1)
    interval = claims.compare(pd.concat([ours, rows("b", ids, values)]), "a", "b", "score")
    assert interval.value == pytest.approx(1, abs=0.1)
    assert 0.9 < interval.low < interval.high < 1.1


def test_missing_and_infinite_values_are_left_out_and_capped():
    table = rows("a", ["x", "y", "z"], [np.nan, np.inf, 1.0])
    assert claims.mean_interval(table, "score").value == pytest.approx(50)
    both = pd.concat([table, rows("b", ["x", "y", "z"], [0.0, 0.0, 0.0])])
    assert claims.compare(both, "a", "b", "score").value == pytest.approx(50)


def test_paper_scale_names_the_folders_it_needs(monkeypatch):
    monkeypatch.delenv("BITRESEDIT_INFINITY", raising=False)
    with pytest.raises(InputError, match="BITRESEDIT_INFINITY"):
        claims.main_edits(Context(scale="paper"))


def test_every_claim_is_collected_with_three_seeds_but_the_sweep():
    assert {c.id: c.seeds for c in collect(claims)} == {"B1": 3, "B2": 3, "B3": 3, "B4": 3, "B5": 1, "B6": 3, "B7": 3}
