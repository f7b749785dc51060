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
    FACTORS,
    GROUNDS,
    KINDS,
    MATERIALS,
    OPTIONAL_FACTORS,
    SAMPLE,
    SHAPES,
    SKIES,
    Factors,
    Scene,
    edit,
    parse_caption,
    render,
    render_pair,
    sample_edit,
    sample_factors,
    sample_scene,
    silhouettes,
)
from bitresedit.scenes.render import _AIM, _EYE, _FOCAL, _light_directions, _rays, _refract, _screen
from bitresedit.scenes.scene import SECOND_FACTORS, Solid
from bitresedit.scenes.solids import bounding_sphere, footprint_distance, hits, interval, normal
from bitresedit.scenes.surroundings import _TABLE, LIGHTS, PAINT, sky_colour, value_noise
from bitresedit.text import mirror

SURROUNDINGS = list(itertools.product(GROUNDS, SKIES))
FACTS = Factors("large", "red", "matte", "ball", "sand", "clear")


def solid_of(shape: str) -> Solid:
    return Solid(shape, "red", "matte", x=0.3, z=-0.2, radius=0.8, height=1.6, yaw=0.4)


def inside(solid: Solid, points: np.ndarray) -> np.ndarray:
    """The solids' definitions, written apart from the intersection code; points [..., 3], float64."""
    x, y, z = points[..., 0] - solid.x, points[..., 1], points[..., 2] - solid.z
    between = (y >= 0) & (y <= solid.height)
    if solid.shape == "ball":
        return x**2 + (y - solid.radius) ** 2 + z**2 <= solid.radius**2
    if solid.shape == "cube":
        turn = np.exp(1j * solid.yaw) * (x + 1j * z)
        return between & (np.abs(turn.real) <= solid.radius) & (np.abs(turn.imag) <= solid.radius)
    width = solid.radius if solid.shape == "cylinder" else solid.radius * (1 - y / solid.height)
    return between & (np.hypot(x, z) <= width)


def random_rays(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    origin = rng.uniform((-4, 0.05, -4), (4, 4, 4), size=(count, 3))
    aim = rng.uniform((-0.9, -0.3, -1.4), (1.5, 2.2, 1.0), size=(count, 3))
    direction = aim - origin
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    return origin, direction


@pytest.mark.parametrize("shape", SHAPES)
def test_intervals_equal_brute_force_marching(shape: str) -> None:
    solid = solid_of(shape)
    origin, direction = random_rays(400, seed=SHAPES.index(shape))
    step = 0.002
    t = np.arange(-1.0, 9.0, step)
    marched = inside(solid, origin[:, None] + direction[:, None] * t[None, :, None])
    t_in, t_out = interval(solid, origin.T.astype(np.float32), direction.T.astype(np.float32))
    length = np.where(t_out > t_in, np.minimum(t_out, 9) - np.maximum(t_in, -1), 0).clip(0)
    np.testing.assert_allclose(marched.sum(1) * step, length, atol=2.5 * step)
    met = marched.any(1)
    assert 100 < met.sum() < 400
    long = met & (length > 0.02)
    np.testing.assert_allclose(t[marched.argmax(1)][long], np.maximum(t_in, -1)[long], atol=2.5 * step)


def test_ball_interval_equals_the_closed_form_through_the_centre() -> None:
    solid = solid_of("ball")
    centre, _ = bounding_sphere(solid)
    eye = np.array([2.0, 3.0, -4.0], np.float32)
    distance = np.linalg.norm(centre - eye)
    direction = ((centre - eye) / distance)[:, None]
    t_in, t_out = interval(solid, eye[:, None], direction)
    np.testing.assert_allclose([t_in[0], t_out[0]], [distance - 0.8, distance + 0.8], rtol=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_vertical_and_axis_parallel_rays_meet_the_solid(shape: str) -> None:
    solid = solid_of(shape)
    origin = np.array([[0.35, 5.0, -0.2], [5.0, 0.5, -0.2], [0.35, 0.5, 5.0]], np.float32).T
    direction = np.array([[0, -1, 0], [-1, 0, 0], [0, 0, -1]], np.float32).T
    assert hits(solid, origin, direction).all()
    assert not hits(solid, origin, -direction).any()


@pytest.mark.parametrize("shape", SHAPES)
def test_normals_have_length_one_and_point_against_the_ray(shape: str) -> None:
    solid = solid_of(shape)
    origin, direction = (a.T.astype(np.float32) for a in random_rays(3000, seed=5))
    t_in, t_out = interval(solid, origin, direction)
    hit = (t_out > t_in + 0.05) & (t_in > 0)
    points = (origin + direction * t_in)[:, hit]
    n = normal(solid, points)
    np.testing.assert_allclose(np.linalg.norm(n, axis=0), 1, atol=1e-5)
    # A bevel turns a normal by up to 45 degrees, so a grazing ray at an edge may see it from behind; no other may.
    against = (n * direction[:, hit]).sum(0)
    assert (against < 0.71).all()
    assert (against < 1e-3).mean() > 0.97
    outward = points + 0.02 * n
    assert not inside(solid, outward.T.astype(np.float64)).any()


@pytest.mark.parametrize("shape", SHAPES)
def test_bounding_sphere_holds_the_solid(shape: str) -> None:
    solid = solid_of(shape)
    points = np.random.default_rng(0).uniform((-1.5, -0.2, -2), (2, 2, 2), size=(20000, 3))
    points = points[inside(solid, points)]
    centre, radius = bounding_sphere(solid)
    assert len(points) > 500
    assert np.linalg.norm(points - centre, axis=1).max() <= radius


@pytest.mark.parametrize("shape", ["cube", "cylinder", "cone"])
def test_footprint_distance_is_the_distance_to_the_nearest_ground_point_of_the_solid(shape: str) -> None:
    solid = solid_of(shape)
    grid = np.stack(np.meshgrid(np.linspace(-1, 2, 400), np.linspace(-2, 1, 400)), -1).reshape(-1, 2)
    base = grid[inside(solid, np.stack((grid[:, 0], np.zeros(len(grid)), grid[:, 1]), -1))]
    x, z = np.random.default_rng(1).uniform(-2.5, 2.5, size=(2, 60))
    brute = np.sqrt(((base[:, None] - np.stack((x, z), -1)) ** 2).sum(-1)).min(0)
    np.testing.assert_allclose(footprint_distance(solid, x, z), brute, atol=0.012)


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
    # Two processes for one of the materials: starting them takes longer than the pictures.
    assert (pictures == render(again, size=24, processes=1 + (material == "glass"))).all()
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


def test_the_flipped_picture_shows_the_second_object_on_the_side_its_caption_says() -> None:
    facts = replace(FACTS, second_colour="blue", second_shape="ball", side="left")
    scene = sample_scene(np.random.default_rng(0), facts).mirrored()
    assert scene.caption().endswith("a blue ball to the right")
    main, second = (np.argwhere(mask)[:, 1].mean() for mask in silhouettes(scene))
    assert second > main


def test_changing_the_side_of_a_flipped_scene_changes_what_is_seen() -> None:
    facts = replace(FACTS, second_colour="blue", second_shape="ball", side="left")
    scene = Scene(facts, flipped=True)
    assert scene.shown.side == "right"
    assert scene.changed(side="left").shown.side == "left"
    assert scene.changed(colour="green").shown == replace(scene.shown, colour="green")


FACTOR_STRATEGY = st.builds(
    Factors,
    **{name: st.sampled_from(FACTORS[name]) for name in ("size", "colour", "material", "shape", "ground", "sky")},
)
SECOND_STRATEGY = st.none() | st.tuples(*(st.sampled_from(FACTORS[name]) for name in SECOND_FACTORS))


@given(FACTOR_STRATEGY, SECOND_STRATEGY)
def test_captions_read_back_as_the_factors_they_were_written_from(facts: Factors, second: tuple | None) -> None:
    if second is not None:
        facts = replace(facts, **dict(zip(SECOND_FACTORS, second, strict=True)))
    assert parse_caption(facts.caption()) == facts


def test_captions_have_the_documented_form() -> None:
    facts = Factors("large", "blue", "metal", "ball", "sand", "sunset", "red", "cone", "right")
    assert facts.caption() == "a large blue metal ball on sand under a sunset sky, a red cone to the right"
    orange = replace(facts, second_colour="orange", side="behind").caption()
    assert orange == "a large blue metal ball on sand under a sunset sky, an orange cone behind"


@pytest.mark.parametrize(
    ("without", "expected"),
    [
        (("size", "material", "sky"), "a blue ball on sand, a red cone to the right"),
        (("size", "colour"), "a metal ball on sand under a sunset sky, a red cone to the right"),
        (OPTIONAL_FACTORS, "a ball, a red cone to the right"),
    ],
)
def test_short_captions_leave_phrases_out_whole(without: tuple[str, ...], expected: str) -> None:
    facts = Factors("large", "blue", "metal", "ball", "sand", "sunset", "red", "cone", "right")
    assert facts.caption(without) == expected
    assert replace(facts, colour="orange").caption(("size",)).startswith("an orange metal ball")


@pytest.mark.parametrize(
    "caption",
    [
        "",
        "a ball",
        "a large blue metal ball on sand under a sunset sky,",
        "a large blue metal ball on sand under a sunset sky, a red cone to the behind",
        "a large blue metal ball on sand under a sunset sky, an red cone behind",
        "a large blue metal ball on sand under a sunset sky, a red cone left",
        "A large blue metal ball on sand under a sunset sky",
    ],
)
def test_other_captions_are_refused(caption: str) -> None:
    with pytest.raises(ValueError, match="not a canonical scene caption"):
        parse_caption(caption)


def test_bad_factors_are_refused() -> None:
    with pytest.raises(ValueError, match="colour is 'mauve'; it must be one of red"):
        replace(FACTS, colour="mauve")
    with pytest.raises(ValueError, match="needs a colour, a shape and a side"):
        replace(FACTS, second_shape="cube")
    with pytest.raises(ValueError, match="ground is ''; it must be one of sand"):
        replace(FACTS, ground="")


def test_sampled_factors_are_balanced_and_the_second_object_differs_in_colour() -> None:
    rng = np.random.default_rng(0)
    draws = [sample_factors(rng) for _ in range(1000)]
    for name, values in FACTORS.items():
        present = [getattr(f, name) for f in draws if getattr(f, name) is not None]
        expected = len(present) / len(values)
        for value in values:
            assert abs(present.count(value) - expected) < 5 * np.sqrt(expected)
    assert 0.46 < np.mean([f.has_second for f in draws]) < 0.54
    assert not any(f.colour == f.second_colour for f in draws)


@pytest.mark.parametrize("kind", KINDS)
def test_an_edit_changes_what_its_kind_says_and_nothing_outside_its_mask(kind: str) -> None:
    for seed in range(3):
        pair = sample_edit(np.random.default_rng(seed), kind)
        assert pair.kind == kind
        assert pair == sample_edit(np.random.default_rng(seed), kind)
        names = {"second_colour", "second_shape", "side"} if kind in ("add", "remove") else {kind}
        assert set(pair.changed) == names
        assert replace(pair.target, factors=pair.source.factors) == pair.source
        source, target, mask = render_pair(pair, size=48)
        assert (source[~mask] == target[~mask]).all()
        assert (source == render([pair.source], 48)[0]).all()
        assert (target == render([pair.target], 48)[0]).all()
        # Beyond the differing pixels the mask has only what the changed object covers.
        outlines = [silhouettes(scene, 48) for scene in (pair.source, pair.target)]
        index = {"add": 1, "remove": 1, "ground": None, "sky": None}.get(kind, 0)
        covered = np.zeros((48, 48), bool)
        for masks in outlines:
            if index is not None and index < len(masks):
                covered |= masks[index]
        assert (mask == ((source != target).any(-1) | covered)).all()


def test_a_recoloured_object_on_a_dull_ground_changes_only_where_it_shows() -> None:
    scene = Scene(replace(FACTS, ground="snow"))
    pair = edit(scene, colour="green")
    mask = render_pair(pair).mask
    assert (mask == silhouettes(scene)[0]).all()


def test_a_sky_edit_changes_almost_every_pixel_and_a_removal_few() -> None:
    scene = Scene(replace(FACTS, second_colour="blue", second_shape="ball", side="right"), shift=(-0.33, 0.0))
    assert render_pair(edit(scene, sky="night"), 48).mask.mean() > 0.95
    assert 0.02 < render_pair(edit(scene, second_shape=None), 48).mask.mean() < 0.2


def test_edits_of_several_factors_say_so() -> None:
    pair = edit(Scene(FACTS), colour="blue", shape="cube")
    assert pair.kind == "several"
    assert pair.changed == {"colour": "blue", "shape": "cube"}
    both = edit(pair.target, colour="red", second_colour="pink", second_shape="cone", side="left")
    assert both.kind == "several"


def test_the_sample_turns_a_red_metal_ball_into_a_blue_glass_cube() -> None:
    assert "red metal ball" in SAMPLE.source_caption
    assert "blue glass cube" in SAMPLE.target_caption
    assert set(SAMPLE.changed) == {"colour", "material", "shape"}


def test_edits_that_change_nothing_or_have_an_unknown_kind_are_refused() -> None:
    with pytest.raises(ValueError, match="changes nothing"):
        edit(Scene(FACTS), colour="red")
    with pytest.raises(ValueError, match="kind is 'melt'; it must be one of colour"):
        sample_edit(np.random.default_rng(0), "melt")


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
