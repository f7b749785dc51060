"""The commands beside `edit`, as a user meets them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from command_lines import PROMPTS, failed, opened
from PIL import Image

from bitresedit import bench as bench_module
from bitresedit.backbones.scene_var import SceneVAR
from bitresedit.editor import Editor
from bitresedit.train import TrainingResult
from papers_shared.artifacts import read_jsonl


def test_samples_are_listed_and_written(run, tmp_path):
    ran = run("samples", "--out", "s", "--json")
    names = [row["sample"] for row in json.loads(ran.out)]
    assert names[:2] == ["default", "colour"]
    assert len(list((tmp_path / "s").glob("*.png"))) == 3 * len(names)
    source, truth, mask = (
        np.asarray(opened(tmp_path / f"s/default-{part}.png")) for part in ("source", "truth", "mask")
    )
    assert np.array_equal(source[mask == 0], truth[mask == 0])
    assert failed(run("samples", "--out", "s"), "exists")


def test_a_caption_is_drawn_and_seeds_stand_side_by_side(run, tmp_path, scene_file):
    ran = run("sample", "a small green cone on sand", "--seeds", "1..3", "--ckpt", scene_file)
    assert ran.code == 0, ran.err
    assert opened(tmp_path / "sample.png").size == (96, 32)
    assert failed(run("sample", "a dragon", "--ckpt", scene_file, "--out", "d.png"), "dragon")


def test_bits_survive_the_way_to_a_file_and_back(run, picture, tmp_path, scene_file, scene_model, photo):
    assert run("encode", picture, "--ckpt", scene_file).code == 0
    assert run("decode", "bits.npz", "--ckpt", scene_file).code == 0
    model = SceneVAR.load(scene_file)
    pixels = torch.from_numpy(photo / 127.5 - 1).float().permute(2, 0, 1)[None]
    bits = model.encode_image(pixels)
    with np.load(tmp_path / "bits.npz") as file:
        assert all(np.array_equal(file[name], b[0].numpy()) for name, b in zip(sorted(file.files), bits, strict=True))
    rebuilt = ((model.decode(model.bsq.sum(bits))[0].clamp(-1, 1) + 1) * 127.5).round().byte().permute(1, 2, 0).numpy()
    assert np.array_equal(np.asarray(opened(tmp_path / "decoded.png")), rebuilt)
    np.savez(tmp_path / "other.npz", scale_01=np.zeros((1, 1, 3), bool))
    assert failed(run("decode", "other.npz", "--out", "o.png", "--ckpt", scene_file), "bits of another model")
    assert failed(run("decode", picture, "--out", "o.png", "--ckpt", scene_file), "cannot read bits")
    (tmp_path / "empty.npz").touch()
    with (tmp_path / "array.npz").open("wb") as file:
        np.save(file, np.zeros(3, bool))
    for name in ("empty.npz", "array.npz"):
        ran = run("decode", name, "--out", "o.png", "--ckpt", scene_file)
        assert failed(ran, f"cannot read bits from {name}", "encode")


def test_bits_of_a_tall_picture_find_their_way_back_through_infinity(run, tmp_path, infinity_folder, photo):
    Image.fromarray(photo).resize((28, 42)).save(tmp_path / "tall.png")
    model = ("--backbone", "infinity", "--ckpt", infinity_folder, "--pn", "0.06M")
    ran = run("encode", "tall.png", *model)
    assert ran.code == 0, ran.err
    ran = run("decode", "bits.npz", *model)
    assert ran.code == 0, ran.err
    assert opened(tmp_path / "decoded.png").size == (28, 42)
    assert failed(run("decode", "bits.npz", *model[:-1], "0.25M", "--out", "o.png"), "bits of another model")


def test_the_auto_mask_is_written_at_the_pictures_size(run, tmp_path, scene_file, photo):
    Image.fromarray(photo).resize((90, 60)).save(tmp_path / "wide.png")
    ran = run("mask", "wide.png", *PROMPTS, "--ckpt", scene_file)
    assert ran.code == 0, ran.err
    mask = np.asarray(opened(tmp_path / "mask.png"))
    assert mask.shape == (60, 90)
    assert set(np.unique(mask)) == {0, 255}
    assert mask[:, :15].max() == mask[:, 75:].max() == 0


def test_inspect_says_what_a_checkpoint_holds(run, scene_file):
    ran = run("inspect", scene_file, "--json")
    assert ran.code == 0
    assert json.loads(ran.out)["tensors"] > 50
    assert failed(run("inspect", "nowhere.pth"), "nowhere.pth")


def test_train_takes_recipe_precision_and_seed_and_prints_its_gates(run, tmp_path, monkeypatch):
    taken = []

    def train(*given, **named):
        taken.append((given, named))
        files = (tmp_path / name for name in ("w.safetensors", "r.json", "f.png", "s.png"))
        return TrainingResult(*files, {"tokenizer_psnr": {"measured": 33.0, "at_least": 32.5, "holds": True}})

    monkeypatch.setattr("bitresedit.train.train", train)
    ran = run("train", "--recipe", "scene64", "--out", "t", "--seed", 3, "--precision", "fp32", "--resume")
    assert ran.code == 0, ran.err
    want = {"seed": 3, "precision": "fp32", "resume": True, "force": False}
    assert taken == [(("scene64", Path("t")), want)]
    assert "tokenizer_psnr" in ran.out
    assert "w.safetensors" in ran.out
    assert failed(run("train", "--precision", "fp8"), "--precision")


def test_piebench_runs_from_its_files_to_a_table(run, tmp_path, scene_file, bench, clip):
    data = json.loads((bench / "mapping_file.json").read_text())
    data["921000000000"] |= {"original_prompt": "a [red ball", "editing_prompt": "a blue] ball"}
    data["000000000000"] |= {"original_prompt": "a ball", "editing_prompt": "a [red] ball"}
    (tmp_path / "pie").mkdir()
    (tmp_path / "pie/mapping_file.json").write_text(json.dumps(data))
    (tmp_path / "pie/annotation_images").symlink_to(bench / "annotation_images")
    args = ("bench", "--suite", "piebench", "--data", "pie", "--methods", "bitresedit", "--clip", clip)
    ran = run(*args, "--ckpt", scene_file, "--json")
    assert ran.code == 0, ran.err
    assert "column lpips is skipped: no lpips folder given" in ran.err
    means = json.loads(ran.out)
    assert [(row["method"], row["edits"], row["empty_complement"]) for row in means] == [("bitresedit", 3, 1)]
    rows = read_jsonl(tmp_path / "bench/rows.jsonl")
    assert {row["mask_used"] for row in rows} == {"annotation"}
    assert [row["psnr"] is None for row in rows[:3]] == [False, False, True]
    assert means[0]["psnr"] == pytest.approx(np.mean([row["psnr"] for row in rows[:2]]))
    assert all(0 <= row["clip_edit"] <= 100 for row in rows)


def test_numbers_that_json_lacks_are_written_as_none_and_as_the_cap():
    assert bench_module._plain({"a": float("nan"), "b": float("inf"), "c": 1.5, "d": "x", "e": None, "f": True}) == {
        "a": None, "b": 99.0, "c": 1.5, "d": "x", "e": None, "f": True,
    }  # fmt: skip


def test_bench_writes_rows_pictures_and_a_summary(run, tmp_path, scene_file, fresh_probe):
    args = ("bench", "--count", 2, "--methods", "bitresedit,aredit_mask", "--seeds", "2", "--ckpt", scene_file)
    ran = run(*args, "--json")
    assert ran.code == 0, ran.err
    means = json.loads(ran.out)
    assert [(row["method"], row["edits"]) for row in means] == [("bitresedit", 4), ("aredit_mask", 4)]
    rows = read_jsonl(tmp_path / "bench/rows.jsonl")
    assert len(rows) == 8
    assert all((tmp_path / "bench" / row["image"]).exists() for row in rows)
    assert means[0]["background_psnr"] == pytest.approx(np.mean([r["background_psnr"] for r in rows[:4]]))
    assert all(row["kept_difference"] == 0 for row in rows if row["method"] == "bitresedit")
    assert failed(run(*args), "--resume")
    assert failed(run(*args, "--set", "eta=1", "--resume"), "eta")


def test_shards_together_are_the_whole_suite(run, tmp_path, scene_file, fresh_probe):
    args = ("bench", "--count", 3, "--methods", "bitresedit", "--ckpt", scene_file)
    assert run(*args, "--out", "whole").code == 0
    for i in (1, 2):
        ran = run(*args, "--out", "parts", "--shard", f"{i}/2", "--json")
        assert ran.code == 0, ran.err
    assert json.loads(ran.out)[0]["edits"] == 3
    parts = [row for i in (1, 2) for row in read_jsonl(tmp_path / f"parts/shard-{i}-of-2/rows.jsonl")]
    whole = read_jsonl(tmp_path / "whole/rows.jsonl")
    key = {row["id"]: row["background_psnr"] for row in whole}
    assert {row["id"]: row["background_psnr"] for row in parts} == pytest.approx(key, abs=1e-3)
    assert failed(run(*args, "--out", "parts", "--shard", "3/2"), "--shard is '3/2'")
    assert failed(run("bench", "--suite", "piebench", "--ckpt", scene_file), "--data")
    assert failed(run(*args, "--clip", "here", "--out", "other"), "--clip goes with --suite piebench")


BENCH = ("bench", "--count", "3", "--methods", "bitresedit", "--batch", "1", "--out", "b", "--ckpt")


def resume_bench(run, tmp_path, scene_file, monkeypatch):
    """Resume after one finished item: it is kept as it is, and the other two are made, each once."""
    [kept] = read_jsonl(tmp_path / "b/rows.jsonl")
    before = (tmp_path / "b" / kept["image"]).stat().st_mtime_ns
    clean, edited = Editor.edit_batch, []
    monkeypatch.setattr(Editor, "edit_batch", lambda s, items: edited.append(len(items)) or clean(s, items))
    assert run(*BENCH, scene_file, "--resume").code == 0
    assert edited == [1, 1]
    rows = read_jsonl(tmp_path / "b/rows.jsonl")
    assert rows[0] == kept
    assert len({row["id"] for row in rows}) == 3
    assert (tmp_path / "b" / kept["image"]).stat().st_mtime_ns == before


def in_a_child(call):
    """Call in a copy of this process, which costs no second import; give its exit code, or minus its signal."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # on forks beside threads: torch computes on one here
        child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            call()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_killed_bench_keeps_every_finished_item_and_resumes(run, tmp_path, scene_file, fresh_probe, monkeypatch):
    clean = bench_module.append_jsonl

    def killing(*given):
        clean(*given)
        os.kill(os.getpid(), signal.SIGKILL)

    with monkeypatch.context() as patched:
        patched.setattr(bench_module, "append_jsonl", killing)
        assert in_a_child(lambda: run(*BENCH, scene_file)) == -signal.SIGKILL
    resume_bench(run, tmp_path, scene_file, monkeypatch)


def test_a_bench_stopped_between_picture_and_row_makes_that_item_again(
    run, tmp_path, scene_file, fresh_probe, monkeypatch
):
    clean, calls = bench_module.append_jsonl, []

    def stopping(*given):
        calls.append(given)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return clean(*given)

    with monkeypatch.context() as patched:
        patched.setattr(bench_module, "append_jsonl", stopping)
        ran = run(*BENCH, scene_file)
    assert ran.code == 130
    assert "--resume" in ran.err
    assert len(list((tmp_path / "b/images/bitresedit").iterdir())) == 2
    resume_bench(run, tmp_path, scene_file, monkeypatch)
