"""The claims run from end to end on a small random model: their machinery is tested here, not their truth."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from bitresedit import claim_edits, claims
from bitresedit.backbones.scene_var import SceneVAR
from bitresedit.data import BACKGROUND_KINDS, OBJECT_KINDS
from bitresedit.editor import Editor
from bitresedit.probe import Probe
from papers_shared.claims import Context, collect, run
from papers_shared.errors import InputError


@pytest.fixture
def small_world(monkeypatch, scene_model):
    monkeypatch.setattr(SceneVAR, "load_default", classmethod(lambda cls: scene_model))
    monkeypatch.setattr(Probe, "load_default", classmethod(lambda cls: cls().eval()))
    yield
    claim_edits.load_world.cache_clear()


def check(report, folder, names):
    """The claims were measured and drawn; two hold whatever the model is worth: they are about the arithmetic."""
    entries = {entry["id"]: entry for entry in report["claims"]}
    assert list(entries) == names
    for entry in entries.values():
        assert "error" not in entry["measured"], entry
        assert isinstance(entry["holds"], bool)
        assert (folder / entry["figure"]).stat().st_size > 5000
    assert entries["B6"]["holds"]
    assert entries["B6"]["measured"]["largest_difference"] == 0
    return entries


def test_all_claims_run_and_draw_their_figures(small_world, tmp_path):
    report = run("bitresedit", out=tmp_path, scale="smoke", seeds=(0,))
    entries = check(report, tmp_path, [f"B{i}" for i in range(1, 8)])
    assert entries["B5"]["measured"]["largest_kl_minus_delta"] <= 1e-6


def test_the_papers_scale_runs_on_published_files(tmp_path, monkeypatch, infinity_folder, bench, clip):
    """Tiny random networks and three pictures in the real formats; everything else is what a user would run."""
    folders = {"INFINITY": infinity_folder, "PIEBENCH": bench, "CLIP": clip, "DEVICE": "cpu", "PN": "0.06M"}
    for name, value in folders.items():
        monkeypatch.setenv(f"BITRESEDIT_{name}", str(value))
    # The others read such edits too and take no way of their own at this scale.
    names = ["B1", "B6"]
    entries = check(run("bitresedit", out=tmp_path, scale="paper", seeds=(0,), only=names), tmp_path, names)
    measured = entries["B1"]["measured"]
    assert 0 <= measured["bitresedit"]["value"] <= 100
    assert entries["B6"]["measured"]["edits"] == 3
    # The lock is tried on the one picture that is masked by half or more.
    table = claim_edits.run_edits(Context("paper", (0,), tmp_path), ("bitresedit",), BACKGROUND_KINDS, 80)
    assert table["id"].tolist() == ["921000000000"]
    claim_edits.load_world.cache_clear()


def test_finished_batches_are_not_measured_again(small_world, tmp_path, monkeypatch):
    ctx, calls, clean = Context("smoke", (0,), tmp_path), [], Editor.edit_batch

    def counted(editor, items):
        calls.append(len(items))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return clean(editor, items)

    monkeypatch.setattr(Editor, "edit_batch", counted)
    with pytest.raises(KeyboardInterrupt):
        claim_edits.run_edits(ctx, ("bitresedit", "inpaint"), OBJECT_KINDS, 2)
    again = claim_edits.run_edits(Context("smoke", (0,), tmp_path), ("bitresedit", "inpaint"), OBJECT_KINDS, 2)
    assert calls == [2, 2, 2]
    assert again["method"].tolist() == ["bitresedit"] * 2 + ["inpaint"] * 2


def rows(method, ids, values):
    return pd.DataFrame({"method": method, "id": ids, "seed": 0, "score": values})


def test_comparisons_are_paired_by_item_whatever_the_order():
    rng = np.random.default_rng(0)
    ids, values = [f"i{n}" for n in range(30)], rng.normal(size=30) * 10
    shuffled = rng.permutation(30)
    ours = rows("a", [ids[i] for i in shuffled], values[shuffled] + 1 + rng.normal(size=30) * 0.1)
    interval = claim_edits.compare(pd.concat([ours, rows("b", ids, values)]), "a", "b", "score")
    assert interval.value == pytest.approx(1, abs=0.1)
    assert 0.9 < interval.low < interval.high < 1.1


def test_missing_and_infinite_values_are_left_out_and_capped():
    table = rows("a", ["x", "y", "z"], [np.nan, np.inf, 1.0])
    assert claim_edits.mean_interval(table, "score").value == pytest.approx(50)
    both = pd.concat([table, rows("b", ["x", "y", "z"], [0.0, 0.0, 0.0])])
    assert claim_edits.compare(both, "a", "b", "score").value == pytest.approx(50)


def test_paper_scale_names_the_folders_it_needs(monkeypatch):
    monkeypatch.delenv("BITRESEDIT_INFINITY", raising=False)
    with pytest.raises(InputError, match="BITRESEDIT_INFINITY"):
        claims.main_edits(Context(scale="paper"))


def test_every_claim_is_collected_with_three_seeds_but_the_sweep():
    assert {c.id: c.seeds for c in collect(claims)} == {"B1": 3, "B2": 3, "B3": 3, "B4": 3, "B5": 1, "B6": 3, "B7": 3}
