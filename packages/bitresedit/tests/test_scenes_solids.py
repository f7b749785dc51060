"""Where rays meet the solids, against brute force and closed forms."""

from __future__ import annotations

import numpy as np
import pytest

from bitresedit.scenes import (
    SHAPES,
)
from bitresedit.scenes.scene import Solid
from bitresedit.scenes.solids import bounding_sphere, footprint_distance, hits, interval, normal


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
