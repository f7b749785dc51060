"""Grounds, skies and light: colours as functions of a place on the ground or of a direction.

Colours are linear RGB, float32, shape [3, N]. Textures are smooth on purpose: value noise of low frequency, and
detail that fades with distance, so that a small picture stays crisp without grain.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from .scene import Scene

_TABLE_SIZE = 64
_TABLE = np.random.default_rng(20260613).random((_TABLE_SIZE, _TABLE_SIZE), dtype=np.float32)


def linear(red: float, green: float, blue: float) -> np.ndarray:
    """Turn sRGB components in [0, 1] into linear light, as a [3, 1] column."""
    return (np.array([[red], [green], [blue]], np.float64) ** 2.2).astype(np.float32)


#: Paint of each colour name.
PAINT = {
    "red": linear(0.90, 0.09, 0.08),
    "orange": linear(0.99, 0.50, 0.04),
    "yellow": linear(0.99, 0.88, 0.08),
    "green": linear(0.10, 0.65, 0.16),
    "cyan": linear(0.08, 0.80, 0.84),
    "blue": linear(0.10, 0.24, 0.92),
    "purple": linear(0.46, 0.12, 0.80),
    "pink": linear(1.00, 0.42, 0.80),
}

#: Mean colour of each ground, which is also what it bounces onto objects and fades to in the distance.
GROUND_MEAN = {
    "sand": linear(0.87, 0.74, 0.52),
    "grass": linear(0.34, 0.56, 0.18),
    "wood": linear(0.58, 0.37, 0.21),
    "tiles": linear(0.66, 0.66, 0.68),
    "snow": linear(0.93, 0.95, 0.98),
}

#: How much of its light a ground returns at night: the lamp that lights the objects hardly reaches it.
NIGHT_GROUND = linear(0.66, 0.68, 0.78)

#: Mirror reflection of each ground at normal incidence.
GLOSS = {"sand": 0.0, "grass": 0.0, "wood": 0.035, "tiles": 0.11, "snow": 0.0}


@dataclass(frozen=True)
class Light:
    """Key light and surroundings of a sky: linear RGB [3, 1]; elevation and softness (angular radius) in radians.

    ``fill`` is a white window beside the key light that only metal and glass see, so that their colour holds under a
    dark sky.
    """

    key: np.ndarray
    ambient: np.ndarray
    elevation: float
    softness: float
    zenith: np.ndarray
    horizon: np.ndarray
    fill: float


LIGHTS = {
    "clear": Light(
        np.float32(1.12) * linear(1.0, 0.96, 0.88), linear(0.55, 0.62, 0.72), 0.82, 0.055,
        linear(0.16, 0.42, 0.86), linear(0.74, 0.87, 0.97), 0.08,
    ),
    "cloudy": Light(
        np.float32(0.60) * linear(0.98, 0.98, 1.0), linear(0.74, 0.76, 0.79), 0.95, 0.20,
        linear(0.50, 0.57, 0.66), linear(0.80, 0.83, 0.86), 0.08,
    ),
    "sunset": Light(
        np.float32(1.15) * linear(1.0, 0.90, 0.76), linear(0.66, 0.62, 0.66), 0.50, 0.06,
        linear(0.36, 0.26, 0.56), linear(1.0, 0.62, 0.30), 0.10,
    ),
    "night": Light(
        np.float32(0.95) * linear(0.92, 0.95, 1.0), linear(0.46, 0.50, 0.60), 0.75, 0.05,
        linear(0.02, 0.04, 0.14), linear(0.14, 0.20, 0.40), 0.22,
    ),
}  # fmt: skip


@cache
def _offsets(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0, _TABLE_SIZE, size=(8, 2)).astype(np.float32)


def value_noise(x: np.ndarray, y: np.ndarray, offset: np.ndarray) -> np.ndarray:
    """Smooth noise in [0, 1] with one lattice point per unit, periodic over 64 units."""
    x, y = x + offset[0], y + offset[1]
    fx, fy = np.floor(x), np.floor(y)
    i, j = fx.astype(np.int32) & (_TABLE_SIZE - 1), fy.astype(np.int32) & (_TABLE_SIZE - 1)
    u, v = x - fx, y - fy
    u, v = u * u * (3 - 2 * u), v * v * (3 - 2 * v)
    flat = _TABLE.ravel()
    row, below = i * _TABLE_SIZE, ((i + 1) & (_TABLE_SIZE - 1)) * _TABLE_SIZE
    right = (j + 1) & (_TABLE_SIZE - 1)
    top = flat[row + j] * (1 - v) + flat[row + right] * v
    bottom = flat[below + j] * (1 - v) + flat[below + right] * v
    return top * (1 - u) + bottom * u


def smoothstep(low: float, high: float, x: np.ndarray) -> np.ndarray:
    """Rise smoothly from 0 at `low` to 1 at `high`."""
    t = np.clip((x - np.float32(low)) / np.float32(high - low), 0, 1)
    return t * t * (3 - 2 * t)


def _mix(a: np.ndarray, b: np.ndarray, t: np.ndarray) -> np.ndarray:
    return a + (b - a) * t


def ground_colour(scene: Scene, x: np.ndarray, z: np.ndarray, distance: np.ndarray) -> np.ndarray:
    """Albedo of the ground.

    Parameters
    ----------
    scene
        Names the ground and the texture seed.
    x, z
        Places on the ground [N] (world units).
    distance
        Distance from the eye [N]; detail fades with it.

    Returns
    -------
    array [3, N]
        Linear RGB.
    """
    ground = scene.factors.ground
    offset = _offsets(scene.texture)
    mean = GROUND_MEAN[ground]
    detail = np.exp(-np.float32(0.045) * np.maximum(distance - 4, 0) ** 2)
    colour = _GROUNDS[ground](x, z, offset, mean, detail)
    return colour * NIGHT_GROUND if scene.factors.sky == "night" else colour


def _sand(x: np.ndarray, z: np.ndarray, offset: np.ndarray, mean: np.ndarray, detail: np.ndarray) -> np.ndarray:
    bend = value_noise(x * 0.7, z * 0.7, offset[0])
    ripple = np.sin(5.2 * z + 1.2 * x + 5.0 * bend)
    broad = value_noise(x * 0.55, z * 0.55, offset[1]) - 0.5
    return mean * (1 + detail * (0.085 * ripple + 0.02) + 0.22 * broad)


def _grass(x: np.ndarray, z: np.ndarray, offset: np.ndarray, mean: np.ndarray, detail: np.ndarray) -> np.ndarray:
    broad = value_noise(x * 0.9, z * 0.6, offset[0])
    tuft = value_noise(x * 4.6, z * 2.0, offset[1])
    blade = 0.75 * (tuft - 0.5) * detail + 0.55 * (broad - 0.5)
    light = linear(0.50, 0.70, 0.22)
    dark = linear(0.20, 0.42, 0.12)
    return _mix(dark, light, np.clip(0.5 + blade, 0, 1))


def _wood(x: np.ndarray, z: np.ndarray, offset: np.ndarray, mean: np.ndarray, detail: np.ndarray) -> np.ndarray:
    width = 0.62
    plank = np.floor(x / width)
    across = x / width - plank
    tone = _TABLE.ravel()[(plank.astype(np.int32) * 7 + int(offset[2, 0])) & 1023]
    grain = value_noise(across * 5 + plank * 3, z * 0.45 + tone * 9, offset[0]) - 0.5
    seam = smoothstep(0.0, 0.05, across) * smoothstep(0.0, 0.05, 1 - across)
    shade = (0.80 + 0.42 * tone) * (1 + 0.42 * grain * detail)
    return mean * shade * (1 - (1 - seam) * 0.62 * detail)


def _tiles(x: np.ndarray, z: np.ndarray, offset: np.ndarray, mean: np.ndarray, detail: np.ndarray) -> np.ndarray:
    marble = value_noise(x * 1.3, z * 1.3, offset[0]) - 0.5
    # The joint's width grows with distance as a pixel's does, which keeps far rows of tiles from flickering.
    soft = np.float32(0.35) - np.float32(0.32) * detail
    check = _square_wave(x + 0.3, soft) * _square_wave(z + 0.15, soft)
    light, dark = linear(0.84, 0.84, 0.83), linear(0.47, 0.50, 0.56)
    tone = _mix(dark, light, 0.5 + 0.5 * check * np.sqrt(detail))
    return tone * (1 + 0.14 * marble * detail)


def _square_wave(a: np.ndarray, soft: np.ndarray) -> np.ndarray:
    phase = np.abs(np.mod(a / np.float32(1.05), 2) - 1) - 0.5
    return np.clip(phase / soft, -1, 1)


def _snow(x: np.ndarray, z: np.ndarray, offset: np.ndarray, mean: np.ndarray, detail: np.ndarray) -> np.ndarray:
    drift = value_noise(x * 0.8, z * 0.5, offset[0]) - 0.5
    fine = value_noise(x * 2.3, z * 1.4, offset[1]) - 0.5
    blue = linear(0.70, 0.80, 0.95)
    return _mix(mean, blue, np.clip(0.18 + 0.75 * drift + 0.35 * fine * detail, 0, 1))


_GROUNDS = {"sand": _sand, "grass": _grass, "wood": _wood, "tiles": _tiles, "snow": _snow}


def sky_colour(scene: Scene, direction: np.ndarray, side: float, detailed: bool = True) -> np.ndarray:
    """Radiance of the sky.

    Parameters
    ----------
    scene
        Names the sky and the texture seed.
    direction
        Unit directions [3, N].
    side
        +1 or -1: the side of the picture where sun or moon stands.
    detailed
        Whether to draw clouds, stars, sun and moon.

    Returns
    -------
    array [3, N]
        Linear RGB.
    """
    sky = scene.factors.sky
    light = LIGHTS[sky]
    up = np.maximum(direction[1], 0)
    colour = _mix(light.horizon, light.zenith, 1 - np.exp(-_STEEPNESS[sky] * up))
    if not detailed:
        return colour
    return _SKIES[sky](colour, direction, up, _offsets(scene.texture)[4:], side)


_STEEPNESS = {"clear": 4.0, "cloudy": 2.5, "sunset": 5.0, "night": 5.0}


def _disc(direction: np.ndarray, azimuth: float, elevation: float) -> np.ndarray:
    """Angle (radians, small) between directions and a point in the sky."""
    c = math.cos(elevation)
    at = np.array([[c * math.sin(azimuth)], [math.sin(elevation)], [c * math.cos(azimuth)]], np.float32)
    difference = direction - at
    return np.sqrt((difference * difference).sum(0))


def _clouds(direction: np.ndarray, up: np.ndarray, offset: np.ndarray, scale: float) -> np.ndarray:
    over = scale / (up + 0.16)
    x, z = direction[0] * over, direction[2] * over
    return (
        0.55 * value_noise(x, z, offset[0])
        + 0.30 * value_noise(2.1 * x, 2.1 * z, offset[1])
        + 0.15 * value_noise(4.3 * x, 4.3 * z, offset[2])
    )


def _clear(colour: np.ndarray, direction: np.ndarray, up: np.ndarray, offset: np.ndarray, side: float) -> np.ndarray:
    cover = smoothstep(0.62, 0.80, _clouds(direction, up, offset, 1.1)) * smoothstep(0.0, 0.10, up)
    return _mix(colour, linear(1.0, 1.0, 1.0), 0.55 * cover)


def _cloudy(colour: np.ndarray, direction: np.ndarray, up: np.ndarray, offset: np.ndarray, side: float) -> np.ndarray:
    cover = smoothstep(0.30, 0.68, _clouds(direction, up, offset, 1.3)) * smoothstep(-0.02, 0.10, up)
    return _mix(colour * np.float32(0.86), linear(0.97, 0.97, 0.98), 0.85 * cover)


def _sunset(colour: np.ndarray, direction: np.ndarray, up: np.ndarray, offset: np.ndarray, side: float) -> np.ndarray:
    angle = _disc(direction, side * 0.18, 0.038)
    glow = np.exp(-angle * angle * 18)
    colour = colour + linear(1.0, 0.55, 0.25) * (0.8 * glow)
    band = smoothstep(0.50, 0.75, _clouds(direction, up, offset, 0.7)) * smoothstep(0.0, 0.06, up)
    colour = _mix(colour, linear(0.95, 0.45, 0.45), 0.5 * band)
    disc = 1 - smoothstep(0.040, 0.046, angle)
    return _mix(colour, np.float32(1.5) * linear(1.0, 0.93, 0.62), disc * (direction[1] > -0.002))


def _night(colour: np.ndarray, direction: np.ndarray, up: np.ndarray, offset: np.ndarray, side: float) -> np.ndarray:
    angle = _disc(direction, side * 0.20, 0.072)
    colour = colour + linear(0.55, 0.62, 0.85) * (0.30 * np.exp(-angle * angle * 90))
    moon = (1 - smoothstep(0.033, 0.039, angle)) * smoothstep(0.030, 0.038, _disc(direction, side * 0.178, 0.082))
    return _mix(colour, np.float32(1.2) * linear(0.98, 0.96, 0.86), moon)


_SKIES = {"clear": _clear, "cloudy": _cloudy, "sunset": _sunset, "night": _night}
