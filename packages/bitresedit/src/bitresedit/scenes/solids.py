"""Rays against the four solids, in closed form.

Each solid is convex, so a ray meets it in one interval [t_in, t_out]; a shadow needs only the interval, a picture the
entry and its normal, and glass the exit and its normal as well. Arrays hold one ray per column: [3, N], float32.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Bool, Float32

from .scene import Solid

Vectors = Float32[np.ndarray, "3 n"]
Scalars = Float32[np.ndarray, " n"]

_TINY = np.float32(1e-9)
_BEVEL = 0.07


def dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Dot products of the columns of two [3, ...] arrays."""
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def normalise(a: np.ndarray) -> np.ndarray:
    """Scale the columns of a [3, ...] array to length one."""
    return a / np.sqrt(dot(a, a) + _TINY)


def _away_from_zero(a: np.ndarray) -> np.ndarray:
    return np.where(np.abs(a) < _TINY, _TINY, a)


def _local(solid: Solid, origin: np.ndarray, direction: np.ndarray) -> tuple[np.ndarray, ...]:
    """Origin and direction in the solid's frame: its axis at x = z = 0, its yaw undone."""
    ox, oy, oz = origin[0] - np.float32(solid.x), origin[1], origin[2] - np.float32(solid.z)
    dx, dy, dz = direction[0], direction[1], direction[2]
    if solid.shape == "cube":
        c, s = np.float32(math.cos(solid.yaw)), np.float32(math.sin(solid.yaw))
        ox, oz = c * ox - s * oz, s * ox + c * oz
        dx, dz = c * dx - s * dz, s * dx + c * dz
    return ox, oy, oz, dx, dy, dz


def _slab(o: np.ndarray, d: np.ndarray, low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
    inverse = 1 / _away_from_zero(d)
    a, b = (np.float32(low) - o) * inverse, (np.float32(high) - o) * inverse
    return np.minimum(a, b), np.maximum(a, b)


def _quadratic(a: np.ndarray, half_b: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Roots of a t^2 + 2 half_b t + c, smaller first; an empty interval where there is none."""
    a = _away_from_zero(a)
    disc = half_b * half_b - a * c
    root = np.sqrt(np.maximum(disc, 0))
    inverse = 1 / a
    first, second = (-half_b - root) * inverse, (-half_b + root) * inverse
    miss = disc < 0
    low = np.where(miss, np.float32(np.inf), np.minimum(first, second))
    high = np.where(miss, np.float32(-np.inf), np.maximum(first, second))
    return low, high


def interval(solid: Solid, origin: np.ndarray, direction: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Interval of the ray parameter inside a solid.

    Parameters
    ----------
    solid
        The object.
    origin, direction
        Rays ``o + t d``; arrays [3, ...] that broadcast against each other, float32; d need not have length one.

    Returns
    -------
    tuple of arrays
        ``t_in`` and ``t_out``; the ray misses where ``t_in >= t_out``. Both may be negative (behind the origin).
    """
    ox, oy, oz, dx, dy, dz = _local(solid, origin, direction)
    r, h = np.float32(solid.radius), np.float32(solid.height)
    if solid.shape == "ball":
        oy = oy - r
        return _quadratic(dx * dx + dy * dy + dz * dz, ox * dx + oy * dy + oz * dz, ox * ox + oy * oy + oz * oz - r * r)
    t_in, t_out = _slab(oy, dy, 0.0, solid.height)
    if solid.shape == "cube":
        for o, d in ((ox, dx), (oz, dz)):
            low, high = _slab(o, d, -solid.radius, solid.radius)
            t_in, t_out = np.maximum(t_in, low), np.minimum(t_out, high)
        return t_in, t_out
    if solid.shape == "cylinder":
        low, high = _quadratic(dx * dx + dz * dz, ox * dx + oz * dz, ox * ox + oz * oz - r * r)
        return np.maximum(t_in, low), np.minimum(t_out, high)
    # Cone: x^2 + z^2 = k^2 (h - y)^2 below its apex. A ray steeper than the side (a < 0) crosses both halves of the
    # double cone and is inside the lower half beyond the root on the downward end of the ray.
    k2 = (r / h) ** 2
    up = h - oy
    a = dx * dx + dz * dz - k2 * dy * dy
    low, high = _quadratic(a, ox * dx + oz * dz + k2 * up * dy, ox * ox + oz * oz - k2 * up * up)
    steep, down = a < 0, dy < 0
    infinity = np.float32(np.inf)
    below_in = np.where(steep, np.where(down, high, -infinity), low)
    below_out = np.where(steep, np.where(down, infinity, low), high)
    return np.maximum(t_in, below_in), np.minimum(t_out, below_out)


def hits(solid: Solid, origin: np.ndarray, direction: np.ndarray) -> Bool[np.ndarray, "*n"]:
    """Whether each ray meets the solid in front of its origin."""
    t_in, t_out = interval(solid, origin, direction)
    return (t_out > t_in) & (t_out > 1e-3)


def normal(solid: Solid, point: Vectors) -> Vectors:
    """Outward unit normals at points of the surface.

    The normals of the cube's and the cylinder's edges turn within a narrow bevel, so that edges catch the light.
    """
    x, y, z = point[0] - np.float32(solid.x), point[1], point[2] - np.float32(solid.z)
    r, h = np.float32(solid.radius), np.float32(solid.height)
    if solid.shape == "ball":
        return np.stack((x / r, (y - r) / r, z / r))
    bevel = np.float32(_BEVEL) * r
    if solid.shape == "cube":
        c, s = np.float32(math.cos(solid.yaw)), np.float32(math.sin(solid.yaw))
        u, v = c * x - s * z, s * x + c * z
        w = y - r
        n = np.stack((_bevelled(u, r, bevel), _standing(w, r, bevel), _bevelled(v, r, bevel)))
        n = np.where(dot(n, n) < 1e-6, np.stack((u, w, v)), n)
        n = normalise(n)
        return np.stack((c * n[0] + s * n[2], n[1], -s * n[0] + c * n[2]))
    radial = np.sqrt(x * x + z * z + _TINY)
    ux, uz = x / radial, z / radial
    if solid.shape == "cylinder":
        side = _bevelled(radial, r, bevel)
        cap = _standing(y - h / 2, h / 2, bevel)
        n = np.stack((ux * side, cap, uz * side))
        n = np.where(dot(n, n) < 1e-6, np.stack((ux, np.zeros_like(ux), uz)), n)
        return normalise(n)
    slope = math.hypot(solid.radius, solid.height)
    ny, nr = np.float32(solid.radius / slope), np.float32(solid.height / slope)
    base = (y < 1e-3 * h) & (radial < 0.998 * r)
    side = np.stack((ux * nr, np.full_like(ux, ny), uz * nr))
    return np.where(base, np.array([[0], [-1], [0]], np.float32), side)


def _bevelled(a: np.ndarray, half: np.float32, bevel: np.float32) -> np.ndarray:
    """Signed share of one axis in the normal: 1 on its face, falling to 0 within a bevel below it."""
    return np.sign(a) * np.clip((np.abs(a) - (half - bevel)) / bevel, 0, 1)


def _standing(a: np.ndarray, half: np.float32, bevel: np.float32) -> np.ndarray:
    """The same for the vertical axis: an edge on the ground stays sharp, or it would mirror the floor under it."""
    return np.where(a > 0, _bevelled(a, half, bevel), -(a < -np.float32(0.999) * half).astype(np.float32))


def bounding_sphere(solid: Solid) -> tuple[np.ndarray, float]:
    """Centre [3] and radius of a sphere that holds the solid (world units)."""
    half = solid.height / 2
    reach = {"ball": 0.0, "cube": solid.radius * math.sqrt(2)}.get(solid.shape, solid.radius)
    radius = solid.radius if solid.shape == "ball" else math.hypot(half, reach)
    return np.array([solid.x, half, solid.z], np.float32), radius


def footprint_distance(solid: Solid, x: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Distance on the ground from the solid's footprint (0 inside; the ball counts its contact disc)."""
    px, pz = x - np.float32(solid.x), z - np.float32(solid.z)
    if solid.shape == "cube":
        c, s = np.float32(math.cos(solid.yaw)), np.float32(math.sin(solid.yaw))
        u = np.maximum(np.abs(c * px - s * pz) - np.float32(solid.radius), 0)
        v = np.maximum(np.abs(s * px + c * pz) - np.float32(solid.radius), 0)
        return np.sqrt(u * u + v * v)
    contact = 0.25 * solid.radius if solid.shape == "ball" else solid.radius
    return np.maximum(np.sqrt(px * px + pz * pz) - np.float32(contact), 0)
