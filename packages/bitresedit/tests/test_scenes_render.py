"""The pictures: projection, silhouettes, light, materials, and the same bytes from the same scene."""

from __future__ import annotations

import colorsys
import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bitresedit.scenes import (
    COLOURS,
    GROUNDS,
    MATERIALS,
    SHAPES,
    SKIES,
    Factors,
    Scene,
    edit,
    render,
    sample_factors,
    sample_scene,
    silhouettes,
)
from bitresedit.scenes.render import _AIM, _EYE, _FOCAL, _light_directions, _rays, _refract, _screen
from bitresedit.scenes.surroundings import _TABLE, LIGHTS, PAINT, sky_colour, value_noise
from bitresedit.text import mirror

FACTS = Factors("large", "red", "matte", "ball", "sand", "clear")


SURROUNDINGS = list(itertools.product(GROUNDS, SKIES))


def project(points: np.ndarray, scene: Scene) -> np.ndarray:
    """Pinhole projection of world points [n, 3] to screen coordinates in [-1, 1], right and up."""
    eye = np.array(_EYE) + scene.camera
    forward = np.add(_AIM, (0.3 * scene.camera[0], 0, 0)) - eye
    forward /= np.linalg.norm(forward)
    right = np.cross((0, 1, 0), forward)
    right /= np.linalg.norm(right)
    v = points - eye
    return _FOCAL * np.stack((v @ right, v @ np.cross(forward, right)), -1) / (v @ forward)[:, None]


def in_convex_hull(corners: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Whether points [n, 2] lie in the hull of corners: inside every line that has all corners on one side."""
    result = np.ones(len(points), bool)

    def side(p: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return (b[0] - a[0]) * (p[:, 1] - a[1]) - (b[1] - a[1]) * (p[:, 0] - a[0])

    for a, b in itertools.permutations(corners, 2):
        if (side(corners, a, b) >= -1e-9).all():
            result &= side(points, a, b) >= 0
    return result


@pytest.mark.parametrize("yaw", [-0.7, 0.35, 0.6])
def test_cube_silhouette_is_the_convex_hull_of_its_projected_corners(yaw: float) -> None:
    size = 96
    scene = Scene(replace(FACTS, shape="cube"), camera=(0.1, -0.05, 0.08), yaw=(yaw, 0.0))
    (cube,) = scene.solids()
    corners = []
    for a, height, b in itertools.product((-1, 1), (0, cube.height), (-1, 1)):
        turned = np.exp(-1j * cube.yaw) * cube.radius * (a + 1j * b)
        corners.append((cube.x + turned.real, height, cube.z + turned.imag))
    u, v = _screen(size)
    samples = in_convex_hull(project(np.array(corners), scene), np.stack((u, v), -1).astype(np.float64))
    expected = samples.reshape(4, size, size).any(0)
    (mask,) = silhouettes(scene, size)
    assert (mask != expected).sum() <= 2
    assert expected.sum() > 1500


def test_rays_pass_through_the_points_they_project_from() -> None:
    scene = Scene(FACTS, camera=(-0.1, 0.05, 0.02))
    eye, direction = _rays(scene, 8)
    np.testing.assert_allclose(project((eye + 5 * direction).T, scene), _screen(8).T, atol=2e-5)


def test_a_nearer_object_hides_a_farther_one_in_the_silhouettes() -> None:
    scene = Scene(replace(FACTS, second_colour="blue", second_shape="cube", side="behind"), shift=(0.33, 0.0))
    main, second = silhouettes(scene)
    alone = silhouettes(scene.changed(second_shape=None))[0]
    assert (main == alone).all()
    assert 60 < second.sum() < 900
    # Only pixels on the common edge, whose four samples are shared, belong to both.
    assert (main & second).sum() < 40


@pytest.mark.parametrize("size", ["small", "large"])
@pytest.mark.parametrize("shape", SHAPES)
def test_main_objects_have_one_of_two_sizes_and_stay_in_the_picture(shape: str, size: str) -> None:
    rng = np.random.default_rng(3)
    for _ in range(12):
        scene = sample_scene(rng, replace(sample_factors(rng), shape=shape, size=size))
        rows, columns = np.nonzero(silhouettes(scene)[0])
        extent = max(np.ptp(rows), np.ptp(columns)) + 1
        assert (42 <= extent <= 55) if size == "small" else (57 <= extent <= 76)
        assert 0 < columns.min() <= columns.max() < 95
        assert 0 < rows.min() <= rows.max() < 95


def test_the_second_object_is_visible_on_its_side() -> None:
    rng = np.random.default_rng(4)
    for side, shape, main in itertools.product(("left", "right", "behind"), SHAPES, SHAPES):
        facts = replace(FACTS, shape=main, second_colour="blue", second_shape=shape, side=side)
        scene = sample_scene(rng, facts)
        first, second = (np.argwhere(mask) for mask in silhouettes(scene))
        assert len(second) > 110
        if side != "behind":
            gap = second[:, 1].mean() - first[:, 1].mean()
            assert (gap > 25) if side == "right" else (gap < -25)
        else:
            assert second[:, 0].max() < first[:, 0].max() - 3


def test_refraction_obeys_snell_and_ends_in_total_reflection() -> None:
    angle = np.radians(np.linspace(0, 89, 90)).astype(np.float32)
    direction = np.stack((np.sin(angle), -np.cos(angle), np.zeros_like(angle)))
    up = np.tile(np.array([[0], [1], [0]], np.float32), (1, 90))
    inward, total = _refract(direction, up, np.float32(1 / 1.3))
    assert not total.any()
    np.testing.assert_allclose(np.linalg.norm(inward, axis=0), 1, atol=1e-5)
    np.testing.assert_allclose(1.3 * inward[0], np.sin(angle), atol=1e-5)
    _, total = _refract(direction, up, np.float32(1.3))
    assert (total == (1.3 * np.sin(angle) > 1)).all()


def test_light_samples_fill_a_disc_of_the_sky_around_its_centre() -> None:
    scene = Scene(replace(FACTS, sky="cloudy"))
    samples, centre = _light_directions(scene)
    softness = LIGHTS["cloudy"].softness
    angles = np.arccos(np.clip((samples * centre[:, :, None]).sum(0), -1, 1))
    assert angles.max() <= softness
    assert angles.mean() == pytest.approx(2 / 3 * softness, rel=0.03)
    np.testing.assert_allclose(samples.mean((1, 2)), centre[:, 0], atol=0.01)


def test_a_shadow_falls_on_the_side_away_from_the_light() -> None:
    bare = Scene(replace(FACTS, size="small", ground="snow"), light=(-1.0, 0.0))
    away = edit(bare, size="large").target
    for scene in (bare, away):
        picture = render([scene])[0].astype(int).sum(-1)
        base = np.argwhere(silhouettes(scene)[0])[:, 0].max() - 6
        assert picture[base, 80:90].mean() < picture[base, 4:14].mean() - 60


def test_value_noise_interpolates_its_lattice_and_repeats_after_64_units() -> None:
    offset = np.zeros(2, np.float32)
    i, j = np.meshgrid(np.arange(6, dtype=np.float32), np.arange(6, dtype=np.float32), indexing="ij")
    np.testing.assert_array_equal(value_noise(i, j, offset), _TABLE[:6, :6])
    middle = value_noise(i[:5, :5] + 0.5, j[:5, :5] + 0.5, offset)
    corners = (_TABLE[:5, :5] + _TABLE[1:6, :5] + _TABLE[:5, 1:6] + _TABLE[1:6, 1:6]) / 4
    np.testing.assert_allclose(middle, corners, atol=1e-6)
    np.testing.assert_array_equal(value_noise(i + 64, j - 128, offset), value_noise(i, j, offset))


@pytest.mark.parametrize("material", ["matte", "metal", "glass"])
@pytest.mark.parametrize("sky", SKIES)
def test_each_colour_is_nearest_in_hue_to_its_own_paint(material: str, sky: str) -> None:
    hues = {name: hue(paint[:, 0] ** (1 / 2.2)) for name, paint in PAINT.items()}
    scenes = [Scene(replace(FACTS, colour=c, material=material, sky=sky), shift=(0.05, 0.0)) for c in COLOURS]
    for scene, picture in zip(scenes, render(scenes, size=32), strict=True):
        seen = hue(np.median(picture[silhouettes(scene, 32)[0]], axis=0))
        distance = {name: abs((value - seen + 0.5) % 1 - 0.5) for name, value in hues.items()}
        assert min(distance, key=distance.__getitem__) == scene.factors.colour


def hue(rgb: np.ndarray) -> float:
    scale = 1.0 if rgb.max() <= 1 else 255.0
    return colorsys.rgb_to_hsv(*(float(v) / scale for v in rgb))[0]


@pytest.mark.parametrize("material", MATERIALS)
def test_every_surrounding_renders_alike_in_one_or_two_processes_and_by_seed(material: str) -> None:
    rng = np.random.default_rng(MATERIALS.index(material))
    facts = [replace(sample_factors(rng), material=material, ground=g, sky=s) for g, s in SURROUNDINGS]
    scenes = [sample_scene(np.random.default_rng(i), f) for i, f in enumerate(facts)]
    again = [sample_scene(np.random.default_rng(i), f) for i, f in enumerate(facts)]
    assert scenes == again
    pictures = render(scenes, size=24)
    assert pictures.shape == (len(SURROUNDINGS), 24, 24, 3)
    # Every third by itself, whatever is drawn beside it; two processes for one of the materials, as starting them
    # takes longer than the pictures.
    assert (pictures[::3] == render(again[::3], size=24, processes=1 + (material == "glass"))).all()
    flat = pictures.reshape(len(pictures), -1)
    assert len(np.unique(flat, axis=0)) == len(pictures)


def test_no_scenes_render_to_an_empty_array() -> None:
    assert render([], size=16).shape == (0, 16, 16, 3)


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_a_mirrored_scene_is_the_flipped_picture_with_left_and_right_swapped(seed: int) -> None:
    scene = sample_scene(np.random.default_rng(seed))
    mirrored = scene.mirrored()
    assert (render([mirrored], 32)[0] == render([scene], 32)[0][:, ::-1]).all()
    for a, b in zip(silhouettes(scene, 32), silhouettes(mirrored, 32), strict=True):
        assert (a == b[:, ::-1]).all()
    assert mirrored.caption() == mirror(scene.caption())
    assert mirrored.mirrored() == scene


def test_metal_mirrors_its_surroundings_and_matte_does_not() -> None:
    def change(material: str) -> float:
        scene = Scene(replace(FACTS, material=material, colour="cyan", shape="ball", ground="tiles"))
        other = replace(scene, texture=1)
        inner = silhouettes(scene, 48)[0]
        a, b = render([scene, other], 48).astype(float)
        return float(np.abs(a - b)[inner].mean())

    assert change("metal") > 1.0
    # A matte ball shares a few edge pixels with the ground behind it.
    assert change("matte") < 0.2


def test_skies_are_brighter_than_the_night_and_never_negative() -> None:
    rng = np.random.default_rng(0)
    direction = rng.normal(size=(3, 500)).astype(np.float32)
    direction /= np.linalg.norm(direction, axis=0)
    mean = {}
    for sky in SKIES:
        colour = sky_colour(Scene(replace(FACTS, sky=sky)), direction, side=1.0)
        assert (colour >= 0).all()
        mean[sky] = float(colour.mean())
    assert min(mean, key=mean.__getitem__) == "night"
