"""Arrays, tensors, pictures and figures: what goes in comes out, and the same input gives the same bytes."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors import safe_open
from safetensors.numpy import load_file

from papers_shared import InputError
from papers_shared.artifacts import (
    PALETTE,
    figure_style,
    read_json,
    write_figure,
    write_gif,
    write_npz,
    write_png,
    write_safetensors,
)
from papers_shared.images import open_image

ARRAYS = {
    "grid": np.arange(6, dtype=np.float32).reshape(2, 3),
    "turned": np.arange(6, dtype=np.int64).reshape(2, 3).T,
    "number": np.float64(1.5),
    "empty": np.zeros((0, 4), np.uint8),
}


def test_npz_round_trip_and_same_bytes(tmp_path):
    first = write_npz(tmp_path / "a.npz", ARRAYS)
    second = write_npz(tmp_path / "b.npz", ARRAYS)
    with np.load(first, allow_pickle=False) as loaded:
        for name, array in ARRAYS.items():
            np.testing.assert_array_equal(loaded[name], array)
    assert first.read_bytes() == second.read_bytes()


def test_npz_refuses_what_would_need_pickle(tmp_path):
    with pytest.raises(TypeError, match="'bad' holds Python objects"):
        write_npz(tmp_path / "a.npz", {"bad": np.array([{}, None])})
    assert list(tmp_path.iterdir()) == []


def test_safetensors_round_trip_of_numpy_arrays_in_any_layout(tmp_path):
    path = write_safetensors(tmp_path / "a.safetensors", ARRAYS, {"why": "test"})
    loaded = load_file(path)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(loaded[name], array)
        assert loaded[name].shape == np.shape(array)
    with safe_open(path, "np") as file:
        assert file.metadata() == {"why": "test"}


def test_safetensors_are_the_same_bytes_whatever_the_order_of_metadata(tmp_path):
    notes = {f"key{number}": str(number) for number in range(12)}
    first = write_safetensors(tmp_path / "a.safetensors", ARRAYS, notes).read_bytes()
    for _ in range(5):
        assert write_safetensors(tmp_path / "b.safetensors", ARRAYS, notes).read_bytes() == first


def test_torch_tensors_are_told_by_their_module_and_stored_contiguous(tmp_path):
    torch = pytest.importorskip("torch")
    weight = torch.arange(6.0).reshape(2, 3).T.requires_grad_()
    path = write_safetensors(
        tmp_path / "a.safetensors", {"weight": weight, "half": torch.ones(2, dtype=torch.bfloat16)}
    )
    from safetensors.torch import load_file as load_torch

    loaded = load_torch(path)
    assert torch.equal(loaded["weight"], weight)
    assert loaded["half"].dtype == torch.bfloat16


FIGURE = """
import sys
from pathlib import Path
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
from papers_shared.artifacts import figure_style, write_figure
for suffix in ("png", "svg", "pdf"):
    with figure_style():
        fig, ax = plt.subplots(figsize=(3, 2))
        ax.errorbar([1, 2], [3, 4], yerr=0.5, label="ours")
        ax.fill_between([1, 2], [1, 2], [2, 3], hatch="/")
        ax.legend()
    write_figure(f"{sys.argv[1]}/fig.{suffix}", fig, "What is shown, with bars of 95% intervals.")
"""


def test_figures_are_the_same_bytes_in_every_process(tmp_path, monkeypatch):
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    subprocess.run([sys.executable, "-c", FIGURE, folders[0]], check=True)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "argv", ["", folders[1]])
        exec(FIGURE, {})
    for suffix in ("png", "svg", "pdf"):
        first, second = ((folder / f"fig.{suffix}").read_bytes() for folder in folders)
        assert first == second, suffix


def test_a_figure_in_the_style_uses_the_palette_and_leaves_no_global_trace():
    import matplotlib as mpl
    from matplotlib.figure import Figure

    before = dict(mpl.rcParams)
    with figure_style(figure_figsize=(8, 3)):
        axes = Figure().subplots()
        lines = [axes.plot([0, 1])[0] for _ in range(8)]
        assert tuple(mpl.rcParams["figure.figsize"]) == (8, 3)
    assert [line.get_color() for line in lines] == list(PALETTE)
    assert dict(mpl.rcParams) == before
    with pytest.raises(TypeError, match="no_such_thing"), figure_style(no_such_thing=1):
        pass


def test_the_caption_is_wrapped_below_and_drawn_once(tmp_path):
    from matplotlib.figure import Figure

    with figure_style():
        fig = Figure()
        fig.subplots().plot([0, 1])
    plain = open_image(write_figure(tmp_path / "plain.png", fig))
    long = open_image(write_figure(tmp_path / "long.png", fig, "word " * 60))
    assert long.height > plain.height + 60
    assert abs(long.width - plain.width) < 0.05 * plain.width
    assert fig.texts == []
    assert write_figure(tmp_path / "again.png", fig).read_bytes() == (tmp_path / "plain.png").read_bytes()


def test_pyplot_s_figures_are_closed_so_that_many_do_not_pile_up(tmp_path, monkeypatch):
    import matplotlib.pyplot as plt

    monkeypatch.setitem(plt.rcParams, "figure.max_open_warning", 2)
    for _ in range(4):
        fig, _ = plt.subplots(figsize=(1, 1))
        write_figure(tmp_path / "a.png", fig, dpi=20)
    assert plt.get_fignums() == []


@pytest.mark.parametrize("name", ["a.jpeg", "a", "a.tiff"])
def test_other_figure_formats_are_refused(tmp_path, name):
    from matplotlib.figure import Figure

    with pytest.raises(InputError, match=r"unknown figure format.*\.png, \.svg or \.pdf"):
        write_figure(tmp_path / name, Figure())


def test_figures_respect_force(tmp_path):
    from matplotlib.figure import Figure

    path = write_figure(tmp_path / "a.png", Figure(figsize=(1, 1)))
    with pytest.raises(InputError, match="--force"):
        write_figure(path, Figure(), force=False)


def test_png_keeps_every_pixel(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    path = write_png(tmp_path / "a.png", pixels)
    np.testing.assert_array_equal(np.asarray(open_image(path)), pixels)
    with pytest.raises(InputError, match=r"must end in \.png"):
        write_png(tmp_path / "a.jpg", pixels)


def test_a_gif_has_all_frames_and_its_pace(tmp_path):
    frames = [np.full((4, 5, 3), level, np.uint8) for level in (0, 128, 255)]
    path = write_gif(tmp_path / "a.gif", frames, fps=20)
    with Image.open(path) as movie:
        assert movie.n_frames == 3
        assert movie.info["duration"] == 50
        assert movie.size == (5, 4)
    assert write_gif(tmp_path / "b.gif", frames, fps=20).read_bytes() == path.read_bytes()
    with pytest.raises(ValueError, match="frames of one size"):
        write_gif(path, [frames[0], frames[1][:2]])
    with pytest.raises(ValueError, match="frames of one size"):
        write_gif(path, [])
    with pytest.raises(InputError, match=r"must end in \.gif"):
        write_gif(tmp_path / "a.png", frames)


LIGHT = """
import sys
from pathlib import Path
from papers_shared import artifacts, claims, cli, errors, images
heavy = {"numpy", "matplotlib", "PIL", "rich", "safetensors", "torch", "jax", "scipy", "httpx"} & set(sys.modules)
assert not heavy, heavy
import numpy as np
artifacts.write_safetensors(sys.argv[1], {"a": np.ones(2)})
import papers_shared.metrics
assert not {"torch", "jax"} & set(sys.modules)
"""


def test_importing_loads_nothing_heavy_and_nothing_ever_loads_torch_or_jax(tmp_path):
    subprocess.run([sys.executable, "-W", "error", "-c", LIGHT, tmp_path / "a.safetensors"], check=True)


def test_the_readme_s_run_works_as_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    snippet = next(part for part in readme.split("```python\n")[1:] if "RunDir(" in part).partition("```")[0]
    exec(snippet, {})
    assert read_json("runs/a/summary.json") == {"loss": None}
    assert len((tmp_path / "runs/a/history.jsonl").read_text().splitlines()) == 1000
    assert read_json("runs/a/manifest.json")["status"] == "finished"
