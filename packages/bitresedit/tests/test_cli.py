"""Editing from the command line; each row of the specification's table of bad input has its test here."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from command_lines import BOX, PROMPTS, SOURCE, TARGET, failed, opened
from PIL import Image

from bitresedit import edit_files
from bitresedit.backbones.scene_var import SceneVAR
from bitresedit.editor import Editor


@pytest.fixture
def edit(run, scene_file):
    """Run `edit` with the small model; warnings about how badly it draws are not the point here."""
    return lambda *args: run("edit", *args, "--ckpt", scene_file)


@pytest.fixture
def quick_panels(monkeypatch):
    """Write empty panels where a test looks at other files: drawing one takes longer than all the rest."""
    monkeypatch.setattr(edit_files, "draw_panel", lambda result, truth: None)
    monkeypatch.setattr(edit_files, "write_figure", lambda path, figure, caption, force: path.touch())


def test_without_arguments_the_sample_is_edited_and_three_files_are_written(edit, tmp_path):
    ran = edit()
    assert ran.code == 0, ran.err
    assert opened(tmp_path / "edited.png").size == (96, 96)
    assert opened(tmp_path / "panel.png").width > 500
    record = json.loads((tmp_path / "edit.json").read_text())
    assert record["method"] == "bitresedit"
    assert record["config"]["cfg"] == 2.5
    [entry] = record["edits"]
    assert [row["scale"] for row in entry["trace"]] == [1, 2, 3]
    assert entry["kept_codes_differ_by"] == 0
    assert "truth_psnr" in entry
    assert "against the ground truth" in ran.out
    share = entry["kept_share"]
    kept = f"codes outside the gate ({share:.0%} of the grid) identical" if share else "the gate is open everywhere"
    assert kept in ran.out
    assert "wrote edited.png, panel.png, edit.json" in ran.out


@pytest.mark.usefixtures("quick_panels")
def test_nothing_is_overwritten_without_force(edit, tmp_path):
    (tmp_path / "edited.png").write_bytes(b"mine")
    assert failed(edit(), "edited.png already exists", "--force")
    assert (tmp_path / "edited.png").read_bytes() == b"mine"
    assert not (tmp_path / "panel.png").exists()
    assert edit("--force").code == 0


def test_a_file_in_the_place_of_a_folder_is_named_before_any_work(edit, run, tmp_path):
    (tmp_path / "taken").touch()
    assert failed(edit("--out", "taken/x.png"), "taken", "is a file")
    assert failed(run("samples", "--out", "taken"), "taken", "is a file")


@pytest.mark.usefixtures("quick_panels")
def test_the_same_seed_writes_the_same_picture_and_json_is_the_record(edit, picture, tmp_path):
    first = edit(picture, *PROMPTS, *BOX, "--seed", 3, "--out", "a.png", "--json")
    assert json.loads(first.out)["edits"][0]["seed"] == 3
    assert json.loads((tmp_path / "a.json").read_text())["edits"] == json.loads(first.out)["edits"]
    assert (tmp_path / "a-panel.png").exists()
    assert edit(picture, *PROMPTS, *BOX, "--seed", 3, "--out", "b.png").code == 0
    assert edit(picture, *PROMPTS, *BOX, "--seed", 4, "--out", "c.png").code == 0
    a, b, c = ((tmp_path / f"{name}.png").read_bytes() for name in "abc")
    assert a == b
    assert a != c


@pytest.mark.usefixtures("quick_panels")
def test_a_folder_and_several_seeds_give_a_folder_of_edits(edit, picture, tmp_path, photo):
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("one.png", "two.jpg"):
        Image.fromarray(photo).save(folder / name)
    (folder / "notes.txt").write_text("not a picture")
    (folder / "._one.png").write_bytes(b"notes of macOS")
    ran = edit(folder, *PROMPTS, *BOX, "--seeds", "1..3", "--out", "out")
    assert ran.code == 0, ran.err
    names = sorted(p.name for p in (tmp_path / "out").iterdir())
    edits = [f"{stem}-seed{seed}" for stem in ("one", "two") for seed in (1, 2, 3)]
    kept = ["edit.json", "edits.jsonl", "manifest.json"]
    assert names == sorted([f"{e}.png" for e in edits] + [f"{e}-panel.png" for e in edits] + kept)
    alone = edit(picture, *PROMPTS, *BOX, "--seed", 2, "--out", "alone.png")
    assert alone.code == 0
    assert np.array_equal(
        np.asarray(opened(tmp_path / "alone.png")), np.asarray(opened(tmp_path / "out/one-seed2.png"))
    )


@pytest.mark.usefixtures("quick_panels")
def test_a_damaged_picture_stops_no_other_and_is_done_by_resume(edit, tmp_path, photo):
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("one.png", "three.png"):
        Image.fromarray(photo).save(folder / name)
    broken_png(folder / "two.png", photo)
    args = (folder, *PROMPTS, *BOX, "--out", "out")
    assert failed(edit(*args), "1 of the pictures could not be edited", "two.png", "damaged", "--resume")
    record = json.loads((tmp_path / "out/edit.json").read_text())
    assert [Path(entry["image"]).stem for entry in record["edits"]] == ["one", "three"]
    assert [Path(entry["image"]).stem for entry in record["failed"]] == ["two"]
    Image.fromarray(photo).save(folder / "two.png")
    assert edit(*args, "--resume").code == 0
    record = json.loads((tmp_path / "out/edit.json").read_text())
    assert [Path(entry["image"]).stem for entry in record["edits"]] == ["one", "three", "two"]
    assert record["failed"] == []


@pytest.mark.usefixtures("quick_panels")
def test_a_mask_of_the_whole_picture_keeps_no_code_and_says_so(edit, picture):
    ran = edit(picture, *PROMPTS, "--mask", "0,0,32,32")
    assert "the gate is open everywhere, no code is kept" in ran.out
    assert "identical" not in ran.out


@pytest.mark.usefixtures("quick_panels")
def test_settings_and_methods_reach_the_editor(edit, picture, tmp_path):
    assert (
        edit(
            picture, *PROMPTS, *BOX, "--set", "eta=3", "--set", "lock=on", "--composite", "pixel", "--method", "inpaint"
        ).code
        == 0
    )
    record = json.loads((tmp_path / "edit.json").read_text())
    assert (record["config"]["eta"], record["config"]["composite"]) == (3.0, "pixel")
    assert record["method"] == "inpaint"
    assert all(row["eta"] == 0 and row["locked"] for row in record["edits"][0]["trace"])


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (("--set", "eat=3"), ("no setting 'eat'", "eta")),
        (("--set", "eta"), ("--set eta: not a setting",)),
        (("--set", "lock=maybe"), ("off, auto, on",)),
        (("--method", "magic"), ("no method 'magic'", "bitresedit, aredit")),
        (("--seeds", "x"), ("--seeds x",)),
        (("--seeds", "2", "--out", "x.png"), ("--out FOLDER",)),
        (("--out", "x.xyz"), ("--out x.xyz", ".png")),
        (("--out", "folder"), ("--out folder", ".png")),
        (("--panel", "p.jpg"), ("--panel p.jpg", ".png")),
        (("--device", "abacus"), ("--device abacus",)),
        (("--backbone", "dream"), ("--backbone",)),
        (("--pn", "1M"), ("--pn 1M", "--backbone infinity")),
        (("--seed", "1", "--seeds", "2"), ("both --seed 1 and --seeds 2",)),
        (("--sample", "sky"), ("both a picture", "--sample sky")),
        (("--set", "delta=-1"), ("delta is -1.0, out of range", "at least 0")),
    ],
)
def test_options_that_are_wrong_or_would_be_ignored_are_named(edit, picture, options, parts):
    assert failed(edit(picture, *PROMPTS, *BOX, *options), *parts)


def test_a_picture_needs_both_prompts_and_a_sample_a_known_name(edit, picture):
    assert failed(edit(picture, "--target", TARGET), "--source and --target")
    assert failed(edit("--sample", "mona-lisa"), "no sample 'mona-lisa'", "default, colour")
    assert failed(edit("missing.png", *PROMPTS), "no picture or folder at missing.png")


def test_an_output_never_replaces_the_picture_or_another_output(edit, picture, tmp_path):
    before = (tmp_path / picture).read_bytes()
    assert failed(edit(picture, *PROMPTS, *BOX, "--out", picture, "--force"), "is the picture to edit")
    assert failed(edit(picture, *PROMPTS, *BOX, "--out", "a.png", "--panel", "a.png"), "both a.png")
    assert (tmp_path / picture).read_bytes() == before
    assert not (tmp_path / "a.png").exists()


def test_a_seed_that_no_generator_takes_is_refused(edit):
    assert failed(edit("--seed", str(2**63)), "--seed")


# --- Section 10 of the specification, row by row -------------------------------------------------------------------


def test_an_all_zero_mask(edit, picture, tmp_path):
    Image.new("L", (32, 32)).save(tmp_path / "empty.png")
    assert failed(edit(picture, *PROMPTS, "--mask", "empty.png"), "mask selects no pixel")
    assert failed(edit(picture, *PROMPTS, "--mask", "40,40,50,50"), "selects no pixel of the 32x32 picture")
    assert failed(edit(picture, *PROMPTS, "--mask", "nowhere.png"), "cannot read the mask 'nowhere.png'", "box")


def test_an_auto_mask_that_finds_nothing_suggests_a_box(edit, picture):
    ran = edit(picture, "--source", SOURCE, "--target", SOURCE, "--mask", "auto")
    assert failed(ran, "mask selects no pixel", "--mask x0,y0,x1,y1")


@pytest.mark.usefixtures("quick_panels")
def test_a_mask_of_another_size_is_resized_with_a_warning_and_a_soft_one_cut_at_half(edit, picture, tmp_path):
    soft = np.zeros((64, 64), np.uint8)
    soft[8:40, 8:40] = 200
    soft[40:, 40:] = 90
    Image.fromarray(soft).save(tmp_path / "soft.png")
    ran = edit(picture, *PROMPTS, "--mask", "soft.png")
    assert ran.code == 0
    assert "warning: the mask is 64x64 and the picture 32x32" in ran.err
    share = json.loads((tmp_path / "edit.json").read_text())["edits"][0]["mask_share"]
    assert share == pytest.approx(0.25)


@pytest.mark.usefixtures("quick_panels")
def test_an_empty_target_and_equal_prompts(edit, picture, tmp_path):
    assert failed(edit(picture, "--source", SOURCE, "--target", "", *BOX), "the target prompt is empty")
    assert failed(edit("--target", " "), "the target prompt is empty")
    assert failed(edit(picture, "--source", SOURCE, "--target", "a [red ball", *BOX), "brackets")
    ran = edit(picture, "--source", TARGET, "--target", TARGET, *BOX)
    assert ran.code == 0
    assert ran.err.count("warning: the source and target prompts are the same") == 1
    assert all(row["eta"] == 0 for row in json.loads((tmp_path / "edit.json").read_text())["edits"][0]["trace"])


def test_a_word_outside_the_vocabulary_names_the_nearest(edit, picture):
    ran = edit(picture, "--source", SOURCE, "--target", TARGET.replace("cube", "cubes"), *BOX)
    assert failed(ran, "unknown word 'cubes'", "cube")


def broken_png(path, photo):
    Image.fromarray(photo).save(path)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def huge_png(path, _):
    """A header that promises 60,000 x 60,000 pixels."""
    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(b"\0")), (b"IEND", b"")]
    body = b"".join(struct.pack(">I", len(d)) + n + d + struct.pack(">I", zlib.crc32(n + d)) for n, d in chunks)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)


def animation(path, photo):
    frames = [Image.fromarray(photo), Image.fromarray(255 - photo)]
    frames[0].save(path, "GIF", save_all=True, append_images=frames[1:])


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (broken_png, "damaged"),
        (huge_png, "megapixels"),
        (animation, "2 frames"),
        (lambda path, _: path.write_bytes(b""), "empty"),
        (lambda path, _: path.write_text("hello"), "not a picture"),
    ],
)
def test_pictures_that_cannot_be_used_are_refused(edit, tmp_path, photo, make, part):
    make(tmp_path / "bad.png", photo)
    assert failed(edit("bad.png", *PROMPTS, *BOX), "bad.png", part)


@pytest.mark.usefixtures("quick_panels")
@pytest.mark.parametrize("kind", ["16-bit", "RGBA", "CMYK", "grey", "palette", "rotated"])
def test_pictures_of_other_kinds_are_converted_upright(edit, tmp_path, photo, kind):
    path, image = tmp_path / "in.png", Image.fromarray(photo)
    if kind == "16-bit":
        Image.fromarray(photo[..., 0].astype(np.uint16) * 257).save(path)
    elif kind == "CMYK":
        path = tmp_path / "in.jpg"
        image.convert("CMYK").save(path)
    elif kind == "rotated":
        path = tmp_path / "in.jpg"
        exif = Image.Exif()
        exif[0x0112] = 6
        image.resize((48, 32)).save(path, exif=exif)
    else:
        image.convert({"RGBA": "RGBA", "grey": "L", "palette": "P"}[kind]).save(path)
    ran = edit(path, *PROMPTS, *BOX, "--out", "x.png")
    assert ran.code == 0, ran.err
    # Upright, the rotated picture is 32 wide and 48 high: its centred square crop has side 32.
    assert opened(tmp_path / "x.png").size == (32, 32)


def test_checkpoints_that_cannot_be_used_are_named(run, picture, tmp_path, scene_file):
    def with_ckpt(path):
        return run("edit", picture, *PROMPTS, *BOX, "--ckpt", path)

    assert failed(with_ckpt("nowhere.safetensors"), "nowhere.safetensors")
    (tmp_path / "torn.safetensors").write_bytes(scene_file.read_bytes()[:500])
    assert failed(with_ckpt("torn.safetensors"), "torn.safetensors")
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    tensors = load_file(scene_file)
    with safe_open(scene_file, framework="pt") as file:
        shapes = file.metadata()
    lost = {name: t for name, t in tensors.items() if name != "model.var.head.weight"}
    save_file(lost, tmp_path / "lost.safetensors", shapes)
    assert failed(with_ckpt("lost.safetensors"), "var.head.weight")
    wide = {**tensors, "model.var.head.weight": torch.zeros(4, 4)}
    save_file(wide, tmp_path / "wide.safetensors", shapes)
    assert failed(with_ckpt("wide.safetensors"), "var.head.weight")


def test_infinity_checkpoints_that_cannot_be_used_are_named(run, picture, tmp_path):
    def with_ckpt(path):
        return run("edit", picture, *PROMPTS, *BOX, "--backbone", "infinity", "--ckpt", path)

    assert failed(run("edit", picture, *PROMPTS, "--backbone", "infinity"), "needs --ckpt")
    assert failed(with_ckpt("nowhere"), "nowhere")
    folder = tmp_path / "models"
    (folder / "flan-t5-xl").mkdir(parents=True)
    assert failed(with_ckpt(folder), "transformer")
    torch.save({"head.weight": torch.zeros(2)}, folder / "infinity_2b_reg.pth")
    # A class to be called while unpickling: never run, and said so.
    torch.save({"vae": Harmless()}, folder / "infinity_vae_d32reg.pth")
    assert failed(with_ckpt(folder), "pickled code")


class Harmless:
    """Stands for any code in a pickle."""


def test_logits_that_are_not_finite_stop_with_the_scale(edit, picture, monkeypatch):
    clean = SceneVAR.logits
    monkeypatch.setattr(SceneVAR, "logits", lambda s, x, c, k, h: clean(s, x, c, k, h) * (torch.nan if k == 1 else 1.0))
    assert failed(edit(picture, *PROMPTS, *BOX), "scale 2 of 3 (4x4) are not finite")


# --- Other models, and runs that were stopped ----------------------------------------------------------------------


@pytest.mark.usefixtures("quick_panels")
def test_an_edit_with_infinity_runs_from_the_published_files(run, tmp_path, infinity_folder, picture):
    model = ("--backbone", "infinity", "--ckpt", infinity_folder, "--pn", "0.06M", "--set", "null=cfg_uncond")
    ran = run("edit", picture, "--source", "a [red] ball", "--target", "a [blue] ball", *BOX, *model)
    assert ran.code == 0, ran.err
    assert "of the grid) identical" in ran.out
    record = json.loads((tmp_path / "edit.json").read_text())
    assert (record["config"]["cfg"], record["config"]["null"]) == (4.0392, "cfg_uncond")
    assert len(record["edits"][0]["trace"]) == 7


@pytest.mark.usefixtures("quick_panels")
def test_a_bad_photo_for_the_small_model_is_told_with_its_psnr(edit, picture):
    ran = edit(picture, *PROMPTS, *BOX)
    assert "warning" in ran.err
    assert "dB PSNR" in ran.err
    assert "--backbone infinity" in ran.err
    folder = picture.parent / "photos"
    folder.mkdir()
    for name in ("a.png", "b.png"):
        (folder / name).write_bytes(picture.read_bytes())
    ran = edit(folder, *PROMPTS, *BOX)
    assert ran.err.count("warning") == 1
    assert "2 of 2 pictures" in ran.err
    assert "a.png, " in ran.err


@pytest.mark.usefixtures("quick_panels")
def test_a_stopped_folder_of_edits_resumes_with_the_edits_left(edit, picture, tmp_path, monkeypatch):
    args = (picture, *PROMPTS, *BOX, "--out", "out", "--seeds")
    assert edit(*args, "1..2").code == 0
    lines = (tmp_path / "out/edits.jsonl").read_text()
    assert failed(edit(*args, "1..3"), "out is not empty", "--resume")
    assert failed(edit(*args, "1..3", "--resume", "--set", "eta=1"), "eta 2.3898 -> 1")
    before = (tmp_path / "out/photo-seed1.png").stat().st_mtime_ns
    made = []
    clean = Editor.edit_batch
    monkeypatch.setattr(Editor, "edit_batch", lambda s, items: made.extend(i.seed for i in items) or clean(s, items))
    assert edit(*args, "1..3", "--resume").code == 0
    assert made == [3]
    assert (tmp_path / "out/photo-seed1.png").stat().st_mtime_ns == before
    assert (tmp_path / "out/edits.jsonl").read_text().startswith(lines)
    record = json.loads((tmp_path / "out/edit.json").read_text())
    assert [entry["seed"] for entry in record["edits"]] == [1, 2, 3]
    # One edit has nothing to continue: after Ctrl-C, the same command with --resume makes it.
    assert edit(picture, *PROMPTS, *BOX, "--resume").code == 0
    assert failed(edit(picture, *PROMPTS, *BOX, "--resume"), "edited.png already exists")
