"""PIE-Bench files, masks and metrics against brute force, scikit-image, torchmetrics and literal formulas."""

from __future__ import annotations

import json
import logging
import math
import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import load_file, save_file
from scipy.ndimage import correlate1d
from skimage.metrics import peak_signal_noise_ratio
from tiny_networks import photo

from bitresedit.errors import BitResEditError, CheckpointError, MaskError
from bitresedit.piebench import Metrics, decode_rle, evaluate, load, strip_brackets, summarise
from bitresedit.piebench_networks import Clip, Lpips, StructureDistance


def test_fields_of_the_mapping_file(bench: Path):
    items = load(bench / "mapping_file.json", bench)
    assert [item.id for item in items] == ["000000000000", "111000000000", "921000000000"]
    first = items[0]
    assert first.editing_prompt == "a slanted [rusty] mountain bicycle on the road"
    assert first.target == "a slanted rusty mountain bicycle on the road"
    assert first.editing_instruction == "Make the frame of the bike rusty"
    assert (first.editing_type_id, first.editing_type, first.blended_word) == (0, "random", "bicycle bicycle")
    assert (items[1].source, items[1].editing_type) == ("a red ball", "change object")
    assert items[2].editing_type == "change style"
    assert first.image().size == (512, 512)


def test_the_root_may_be_either_folder_or_left_out(bench: Path):
    paths = [
        [item.image_path for item in load(bench / "mapping_file.json", root)]
        for root in (bench, bench / "annotation_images", None)
    ]
    assert paths[0] == paths[1] == paths[2]


def test_brackets_go_and_words_stay():
    assert strip_brackets("[a] b [c d]") == "a b c d"


def literal_mask(pairs: list[int], shape: tuple[int, int], border: bool) -> np.ndarray:
    pixels = [False] * (shape[0] * shape[1])
    for start, length in zip(pairs[::2], pairs[1::2], strict=True):
        for offset in range(length):
            if start + offset < len(pixels):
                pixels[start + offset] = True
    mask = np.array(pixels).reshape(shape)
    for row in range(shape[0]):
        for column in range(shape[1]):
            if border and (row in (0, shape[0] - 1) or column in (0, shape[1] - 1)):
                mask[row, column] = True
    return mask


@settings(max_examples=40)
@given(
    pairs=st.lists(st.tuples(st.integers(0, 34), st.integers(0, 50)), max_size=6),
    border=st.booleans(),
)
def test_run_lengths_equal_pixel_loops(pairs: list[tuple[int, int]], border: bool):
    numbers = [number for pair in pairs for number in pair]
    assert np.array_equal(decode_rle(numbers, (5, 7), border), literal_mask(numbers, (5, 7), border))


def test_the_border_rule_adds_one_pixel_on_each_side():
    mask = decode_rle([])
    assert mask.sum() == 4 * 512 - 4
    assert not mask[1:-1, 1:-1].any()


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([5], "start, length pairs; this one has 1 numbers"),
        ([0, 2, -1, 3], r"run 1 of the mask \(-1, 3\)"),
        ([512 * 512, 1], "run 0"),
        ([4, -2], "run 0"),
    ],
)
def test_bad_masks_name_the_run(pairs: list[int], message: str):
    with pytest.raises(MaskError, match=message):
        decode_rle(pairs)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mask": None}, "entry 7 of .*mapping_file.json"),
        ({"mask": [1]}, "entry 7 .*pairs"),
        ({"mask": ["1", "x"]}, "entry 7 .*not a list of whole numbers"),
        ({"image_path": 5}, "entry 7 .*image_path is 5, not text"),
        ({"editing_prompt": None}, "entry 7 .*editing_prompt is None, not text"),
        ({"editing_type_id": "10"}, "editing_type_id 10 is not 0 to 9"),
        ({"image_path": "nowhere.jpg"}, "1 of 1 images are missing, first .*nowhere.jpg"),
    ],
)
def test_bad_entries_are_named(bench: Path, tmp_path: Path, change: dict, message: str):
    entry = json.loads((bench / "mapping_file.json").read_text())["000000000000"] | change
    (tmp_path / "mapping_file.json").write_text(json.dumps({"7": entry}))
    with pytest.raises(BitResEditError, match=message):
        load(tmp_path / "mapping_file.json", bench)


def test_bad_files_are_named(bench: Path, tmp_path: Path):
    path = tmp_path / "mapping_file.json"
    with pytest.raises(BitResEditError, match="cannot read"):
        load(path)
    cases = {
        "{": "is not JSON",
        "[]": "holds no entries",
        '{"7": {}}': "entry 7 .* lacks image_path",
        '{"7": 1}': "entry 7 .* is not an object",
    }
    for text, message in cases.items():
        path.write_text(text)
        with pytest.raises(BitResEditError, match=message):
            load(path)


def test_a_mapping_file_with_a_byte_order_mark_is_read(bench: Path, tmp_path: Path):
    text = (bench / "mapping_file.json").read_text()
    (tmp_path / "mapping_file.json").write_text(text, encoding="utf-8-sig")
    assert [item.id for item in load(tmp_path / "mapping_file.json", bench)] == list(json.loads(text))


def literal_ssim(a: np.ndarray, b: np.ndarray) -> float:
    """Average over every pixel and channel, windows mirrored at the frame."""
    taps = np.exp(-((np.arange(11) - 5.0) ** 2) / (2 * 1.5**2))

    def blur(x: np.ndarray) -> np.ndarray:
        for axis in (0, 1):
            x = correlate1d(x, taps / taps.sum(), axis=axis, mode="mirror")
        return x

    means, cross = (blur(a), blur(b)), blur(a * b) - blur(a) * blur(b)
    variances = blur(a * a) - means[0] ** 2 + blur(b * b) - means[1] ** 2
    lightness = (2 * means[0] * means[1] + 0.01**2) / (means[0] ** 2 + means[1] ** 2 + 0.01**2)
    return float((lightness * (2 * cross + 0.03**2) / (variances + 0.03**2)).mean())


def test_outside_metrics_equal_numpy_and_scikit_image(bench: Path):
    item = load(bench / "mapping_file.json", bench)[0]
    edited = photo(7)
    values = Metrics().measure(item.image(), edited, item.mask, item.target)
    keep = ~item.mask[..., None]
    before, after = (np.asarray(image) / 255 * keep for image in (item.image(), edited))
    assert values["mse"] == pytest.approx(((before - after) ** 2).mean(), rel=1e-5)
    assert values["psnr"] == pytest.approx(-10 * math.log10(((before - after) ** 2).mean()), rel=1e-5)
    assert values["psnr"] == pytest.approx(peak_signal_noise_ratio(before, after, data_range=1), rel=1e-5)
    assert values["ssim"] == pytest.approx(literal_ssim(before, after), abs=1e-4)


def test_changes_inside_the_mask_leave_outside_metrics_alone(bench: Path):
    item = load(bench / "mapping_file.json", bench)[0]
    pixels = np.asarray(item.image()).copy()
    pixels[item.mask] = 255 - pixels[item.mask]
    values = Metrics().measure(item.image(), Image.fromarray(pixels), item.mask, item.target)
    assert (values["mse"], values["psnr"]) == (0, math.inf)
    assert values["ssim"] == pytest.approx(1, abs=1e-6)


def test_images_of_different_sizes_are_refused():
    with pytest.raises(BitResEditError, match="differ"):
        Metrics().measure(photo(0), photo(1).resize((64, 64)), np.ones((512, 512), dtype=bool), "a")


def test_columns_without_a_network_are_skipped_and_told(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING, logger="bitresedit.piebench"):
        metrics = Metrics()
    assert metrics.columns == ("psnr", "mse", "ssim")
    assert metrics.skipped == {
        "structure": "no dino folder given",
        "lpips": "no lpips folder given",
        "clip": "no clip folder given",
        "clip_edit": "no clip folder given",
    }
    assert "column clip_edit is skipped: no clip folder given" in caplog.text


def test_a_named_folder_must_be_there(tmp_path: Path):
    for option in ("clip", "lpips", "dino"):
        with pytest.raises(BitResEditError, match="no folder at"):
            Metrics(**{option: tmp_path / "none"})


def test_evaluate_gives_a_row_an_edit_and_counts_empty_complements(bench: Path, tmp_path: Path):
    items = load(bench / "mapping_file.json", bench)
    photo(8).resize((256, 256)).save(tmp_path / "edit.png")
    given_mask = np.zeros((512, 512), dtype=bool)
    given_mask[:256] = True
    table = evaluate(
        [(items[0], photo(7)), (items[1], tmp_path / "edit.png", given_mask), (items[2], np.asarray(photo(9)))]
    )
    assert isinstance(table, pd.DataFrame)
    assert table["id"].tolist() == [item.id for item in items]
    assert table["mask_used"].tolist() == ["annotation", "given", "annotation"]
    assert table["resized"].tolist() == [False, True, False]
    assert table["mask_fraction"].tolist() == [items[0].mask.mean(), 0.5, 1.0]
    assert table["target"].tolist()[1] == "a blue ball"
    assert table[["psnr", "mse", "ssim"]].isna().all(axis=1).tolist() == [False, False, True]
    assert table.attrs["empty_complement"] == 1
    assert set(table.attrs["skipped"]) == {"structure", "lpips", "clip", "clip_edit"}
    again = Metrics().measure(items[0].image(), photo(7), items[0].mask, items[0].target)
    assert table.loc[0, list(again)].to_dict() == again


def test_a_given_mask_of_another_size_is_refused(bench: Path):
    item = load(bench / "mapping_file.json", bench)[0]
    with pytest.raises(MaskError, match=r"\(8, 8\), expected \(512, 512\)"):
        evaluate([(item, photo(7), np.ones((8, 8), dtype=bool))])


def test_summaries_leave_out_and_count_nan():
    table = pd.DataFrame({"editing_type": ["a", "a", "b"], "psnr": [20.0, 30.0, math.nan], "ssim": [0.5, 0.7, 0.9]})
    overall = summarise(table).set_index("metric")
    assert overall.loc["psnr"].tolist() == [25.0, 2, 1]
    assert overall.loc["ssim", "mean"] == pytest.approx(0.7)
    grouped = summarise(table, by="editing_type").set_index(["editing_type", "metric"])
    assert grouped.loc[("b", "psnr"), "n"] == 0
    assert math.isnan(grouped.loc[("b", "psnr"), "mean"])
    assert grouped.loc[("a", "psnr"), "mean"] == 25


def test_lpips_equals_torchmetrics_on_the_same_network(squeezenet: Path):
    from torchmetrics.functional.image.lpips import _LPIPS

    peer = _LPIPS(pretrained=True, net="squeeze", pnet_rand=True)
    state = torch.load(squeezenet / "squeezenet1_1-random.pth", weights_only=True)
    features = {name: value for name, value in state.items() if name.startswith("features.")}
    own = peer.net.state_dict()
    # Both keep the layers in order; torchmetrics renames them by slice.
    peer.net.load_state_dict(dict(zip(own, features.values(), strict=True)))
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.rand(1, 3, 96, 80, generator=generator) * 2 - 1 for _ in range(2))
    lpips = Lpips(squeezenet)
    assert lpips(a, b) == pytest.approx(peer(a, b).item(), rel=1e-5)
    assert lpips(a, a) == 0


def test_a_folder_without_squeezenet_is_named(squeezenet: Path, tmp_path: Path):
    with pytest.raises(CheckpointError, match=r"has no squeezenet1_1-\*\.pth"):
        Lpips(tmp_path)
    torch.save({"features.0.weight": torch.zeros(1)}, tmp_path / "squeezenet1_1.pth")
    with pytest.raises(CheckpointError, match=r"is not SqueezeNet 1\.1: missing features\.0\.bias"):
        Lpips(tmp_path)


def literal_similarity(model, image: Image.Image) -> np.ndarray:
    """Cosines of the keys of the twelfth block, from pixels in 0..255 after the ImageNet normalisation."""
    from torchvision.transforms import functional as tvf

    pixels = torch.from_numpy(np.asarray(image).astype(np.float32)).permute(2, 0, 1)
    pixels = tvf.normalize(tvf.resize(pixels, [32, 32], antialias=True), [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    hidden = model(pixel_values=pixels[None], output_hidden_states=True).hidden_states[11]
    affine = [value for name, value in model.named_parameters() if ".11.layernorm_before." in name]
    normed = torch.nn.functional.layer_norm(hidden, (24,), *affine, eps=model.config.layer_norm_eps)
    key = [module for name, module in model.named_modules() if name.endswith((".key", ".k_proj"))][11]
    keys = (normed[0] @ key.weight.T + key.bias).detach().numpy()
    return np.array([[u @ v / np.linalg.norm(u) / np.linalg.norm(v) for v in keys] for u in keys])


def test_structure_distance_is_the_mse_of_key_similarities(dino: Path):
    pytest.importorskip("torchvision")
    distance = StructureDistance(dino)
    a, b = photo(0), photo(1)
    expected = [literal_similarity(distance.model, image) for image in (a, b)]
    assert expected[0].shape == (17, 17)
    np.testing.assert_allclose(distance.self_similarity(np.asarray(a)).numpy(), expected[0], atol=1e-5)
    value = ((expected[0] - expected[1]) ** 2).mean()
    assert distance(np.asarray(a), np.asarray(b)) == pytest.approx(value, rel=1e-3)
    assert distance(np.asarray(a), np.asarray(a)) == 0


def test_a_folder_without_dino_is_named(dino: Path, tmp_path: Path):
    with pytest.raises(CheckpointError, match="no DINO vision transformer"):
        StructureDistance(tmp_path)


def test_missing_weights_are_named_and_not_filled_with_random_ones(dino: Path, clip: Path, tmp_path: Path):
    for network, whole in ((StructureDistance, dino), (Clip, clip)):
        folder = shutil.copytree(whole, tmp_path / whole.name)
        tensors = load_file(folder / "model.safetensors")
        lost = next(name for name in tensors if name.endswith("layernorm.weight"))
        del tensors[lost]
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        with pytest.raises(CheckpointError, match="1 weights are missing"):
            network(folder)


def literal_clip(model, image: np.ndarray, ids: list[int]) -> float:
    """A hundred times the cosine, from pixels of the network's own size and token numbers."""
    pixels = (image / 255 - [0.5, 0.4, 0.3]) / [0.2, 0.25, 0.3]
    pixels = torch.from_numpy(pixels.astype(np.float32)).permute(2, 0, 1)[None]
    with torch.no_grad():
        seen = model.vision_model(pixel_values=pixels).pooler_output @ model.visual_projection.weight.T
        read = model.text_model(input_ids=torch.tensor([ids])).pooler_output @ model.text_projection.weight.T
    return 100 * float(seen[0] @ read[0] / seen[0].norm() / read[0].norm())


def test_clip_score_is_a_hundred_times_the_positive_cosine(clip: Path):
    from transformers import CLIPModel

    score, model = Clip(clip), CLIPModel.from_pretrained(clip)
    image = np.asarray(photo(0).resize((32, 32)))
    values = {text: literal_clip(model, image, ids) for text, ids in {
        "a red ball": [0, 2, 3, 5, 1], "a blue ball": [0, 2, 4, 5, 1], "a car": [0, 2, 6, 1], "blue": [0, 4, 1],
    }.items()}  # fmt: skip
    for text, value in values.items():
        assert score(image, text) == pytest.approx(max(0.0, value), abs=1e-3)
    assert {value > 0 for value in values.values()} == {True, False}, "both signs occur, so the cut at 0 is seen"


def test_prompts_longer_than_clip_are_cut(clip: Path):
    image = np.asarray(photo(0).resize((32, 32)))
    score = Clip(clip)
    cut = score(image, "a red ball a blue car")
    assert cut > 0
    assert score(image, "a red ball a blue car a car") == pytest.approx(cut, abs=1e-4)


def test_clip_columns_use_the_whole_image_and_the_masked_one(clip: Path, bench: Path):
    metrics, item = Metrics(clip=clip), load(bench / "mapping_file.json", bench)[1]
    edited = photo(4)
    values = metrics.measure(item.image(), edited, item.mask, item.editing_prompt)
    pixels = np.asarray(edited)
    assert values["clip"] == metrics.clip(pixels, "a blue ball")
    inside = np.where(item.mask[..., None], pixels, 0).astype(np.uint8)
    assert values["clip_edit"] == metrics.clip(inside, "a blue ball")
    assert metrics.columns == ("psnr", "mse", "ssim", "clip", "clip_edit")


def test_all_columns_together(clip: Path, dino: Path, squeezenet: Path, bench: Path):
    metrics, items = Metrics(clip=clip, dino=dino, lpips=squeezenet), load(bench / "mapping_file.json", bench)
    table = evaluate([(items[0], photo(5)), (items[2], photo(6))], metrics)
    assert metrics.skipped == {}
    names = ["structure", "psnr", "lpips", "mse", "ssim", "clip", "clip_edit"]
    assert [name for name in table if name in names] == names
    assert table.loc[0, names].notna().all()
    kept = ~items[0].mask
    a, b = (
        torch.from_numpy(np.asarray(image).astype(np.float32) / 255).permute(2, 0, 1)[None] * torch.from_numpy(kept)
        for image in (items[0].image(), photo(5))
    )
    assert table.loc[0, "lpips"] == pytest.approx(metrics.lpips(a * 2 - 1, b * 2 - 1), rel=1e-5)
    assert table.loc[1, ["psnr", "lpips", "mse", "ssim"]].isna().all()
    assert table.loc[1, ["structure", "clip", "clip_edit"]].notna().all()


def test_an_open_clip_folder_is_read_too(tmp_path: Path):
    open_clip = pytest.importorskip("open_clip")
    side = {"width": 32, "layers": 2, "heads": 2}
    model_cfg = {
        "embed_dim": 16,
        "vision_cfg": {"image_size": 32, "patch_size": 8, "width": 32, "layers": 2, "head_width": 16},
        "text_cfg": side | {"context_length": 77, "vocab_size": 49408},
    }
    statistics = {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.25, 0.3]}
    (tmp_path / "open_clip_config.json").write_text(json.dumps({"model_cfg": model_cfg, "preprocess_cfg": statistics}))
    torch.manual_seed(0)
    model = open_clip.CLIP(**model_cfg, output_dict=False).eval()
    torch.save(model.state_dict(), tmp_path / "open_clip_pytorch_model.bin")
    image = np.asarray(photo(0).resize((32, 32)))
    pixels = torch.from_numpy(((image / 255 - statistics["mean"]) / statistics["std"]).astype(np.float32))
    with torch.no_grad():
        seen = model.encode_image(pixels.permute(2, 0, 1)[None])[0]
        read = model.encode_text(open_clip.get_tokenizer("ViT-B-32")(["a red ball"]))[0]
    expected = 100 * float(seen @ read / seen.norm() / read.norm())
    assert Clip(tmp_path)(image, "a red ball") == pytest.approx(max(0.0, expected), abs=1e-3)


@pytest.mark.parametrize(
    ("module", "network", "extra"),
    [("torchvision.models", Lpips, "clip"), ("transformers", StructureDistance, "infinity")],
)
def test_missing_extras_are_named(monkeypatch, tmp_path: Path, module: str, network: type, extra: str):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(BitResEditError, match=rf"bitresedit\[{extra}\]"):
        network(tmp_path)
