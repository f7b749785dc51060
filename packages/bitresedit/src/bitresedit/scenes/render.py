"""A small analytic ray caster.

Per pixel four rays leave a perspective camera. A ray ends on the sky, on the ground or on a solid. The ground has a
texture, soft shadows (rays to samples of an area light), a contact shadow of compact reach, and on wood and tiles a
mirror image. Metal mirrors its surroundings, tinted; glass refracts at entry and exit, absorbs along the path
(Beer-Lambert) and throws a coloured shadow with a bright core.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
from jaxtyping import Bool, UInt8

from .scene import Scene, Solid
from .solids import bounding_sphere, dot, footprint_distance, hits, interval, normal, normalise
from .surroundings import GLOSS, GROUND_MEAN, LIGHTS, PAINT, ground_colour, linear, sky_colour, smoothstep

_SUBSAMPLES = 4
_LIGHT_SAMPLES = 8
_FOCAL = 3.45  # half picture widths
_EYE = (0.0, 2.02, -5.5)
_AIM = (0.0, 0.95, 0.0)
_REFRACTION = 1.30
_FAR = np.float32(1e6)


@dataclass(frozen=True)
class _World:
    """What every shading step needs of one scene."""

    scene: Scene
    solids: tuple[Solid, ...]
    light: np.ndarray  # [3, 4, samples]: directions to the area light, one pattern per subsample
    centre: np.ndarray  # [3, 1]: direction to the middle of the light
    side: float


def render(scenes: Sequence[Scene], size: int = 96, processes: int = 1) -> UInt8[np.ndarray, "n size size 3"]:
    """Render scenes.

    Parameters
    ----------
    scenes
        What to draw.
    size
        Width and height of the pictures (pixels).
    processes
        Worker processes; the result does not depend on their number.

    Returns
    -------
    uint8 array [n, size, size, 3]
        sRGB pictures.
    """
    if processes > 1 and len(scenes) > 1:
        with ProcessPoolExecutor(processes) as pool:
            pictures = list(pool.map(partial(_render_one, size=size), scenes, chunksize=16))
    else:
        pictures = [_render_one(scene, size) for scene in scenes]
    return np.stack(pictures) if pictures else np.zeros((0, size, size, 3), np.uint8)


def silhouettes(scene: Scene, size: int = 96) -> tuple[Bool[np.ndarray, "size size"], ...]:
    """Pixels in which each object shows (in any of the four samples), main object first.

    Parameters
    ----------
    scene
        What to draw.
    size
        Width and height of the masks (pixels).

    Returns
    -------
    tuple of bool arrays [size, size]
    """
    origin, direction = _rays(scene, size)
    intervals = [interval(solid, origin, direction) for solid in scene.solids()]
    entries = np.stack([np.where(t_out > t_in, t_in, np.inf) for t_in, t_out in intervals])
    visible = (entries == entries.min(0)) & np.isfinite(entries)
    masks = visible.reshape(-1, _SUBSAMPLES, size, size).any(1)
    return tuple(masks[:, :, ::-1] if scene.flipped else masks)


@cache
def _screen(size: int) -> np.ndarray:
    """Screen coordinates [2, 4 * size * size] of the four samples of each pixel, subsample by subsample."""
    step = (np.arange(size) + 0.5) / size * 2 - 1
    quarter = 0.5 / size
    grids = []
    for down, right in ((-1, -1), (-1, 1), (1, -1), (1, 1)):
        v, u = np.meshgrid(-(step + down * quarter), step + right * quarter, indexing="ij")
        grids.append(np.stack((u.ravel(), v.ravel())))
    return np.concatenate(grids, axis=1).astype(np.float32)


def _rays(scene: Scene, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Eye [3, 1] and unit ray directions [3, N] of the unflipped picture."""
    eye = np.array(_EYE) + np.array(scene.camera)
    forward = np.array(_AIM) + np.array((0.3 * scene.camera[0], 0.0, 0.0)) - eye
    forward /= np.linalg.norm(forward)
    right = np.cross((0.0, 1.0, 0.0), forward)
    right /= np.linalg.norm(right)
    up = np.cross(forward, right)
    u, v = _screen(size)
    columns = [c.astype(np.float32)[:, None] for c in (forward * _FOCAL, right, up)]
    direction = normalise(columns[0] + columns[1] * u + columns[2] * v)
    return eye.astype(np.float32)[:, None], direction


def _light_directions(scene: Scene) -> tuple[np.ndarray, np.ndarray]:
    azimuth, lift = scene.light
    light = LIGHTS[scene.factors.sky]
    elevation = light.elevation + lift
    c = math.cos(elevation)
    centre = np.array((c * math.sin(azimuth), math.sin(elevation), -c * math.cos(azimuth)))
    a = np.cross(centre, (0.0, 1.0, 0.0))
    a /= np.linalg.norm(a)
    b = np.cross(a, centre)
    total = _SUBSAMPLES * _LIGHT_SAMPLES
    index = np.arange(total)
    radius, angle = np.sqrt((index + 0.5) / total) * light.softness, index * math.pi * (3 - math.sqrt(5))
    spread = centre[:, None] + a[:, None] * (radius * np.cos(angle)) + b[:, None] * (radius * np.sin(angle))
    spread /= np.linalg.norm(spread, axis=0)
    # Neighbouring spiral points go to different subsamples, so each subsample sees the whole disc.
    pattern = spread.reshape(3, _LIGHT_SAMPLES, _SUBSAMPLES).transpose(0, 2, 1)
    return np.ascontiguousarray(pattern, np.float32), centre.astype(np.float32)[:, None]


def _render_one(scene: Scene, size: int) -> np.ndarray:
    light, centre = _light_directions(scene)
    world = _World(scene, scene.solids(), light, centre, math.copysign(1.0, scene.light[0]))
    origin, direction = _rays(scene, size)
    sub = np.repeat(np.arange(_SUBSAMPLES), size * size)
    colour = _trace(world, origin, direction, sub)
    levels = _tone(colour).reshape(3, _SUBSAMPLES, size, size).mean(1)
    picture = (levels * 255 + 0.5).astype(np.uint8).transpose(1, 2, 0)
    return np.ascontiguousarray(picture[:, ::-1] if scene.flipped else picture)


@cache
def _tone_table() -> np.ndarray:
    x = np.linspace(0, 4, 8193)
    shoulder = x / (1 + x**4) ** 0.25
    return (shoulder ** (1 / 2.2)).astype(np.float32)


def _tone(colour: np.ndarray) -> np.ndarray:
    """Display levels in [0, 1]: a soft shoulder near white, then the sRGB-like gamma of 2.2."""
    return _tone_table()[(np.clip(colour, 0, 4) * np.float32(2048)).astype(np.int32)]


def _trace(
    world: _World,
    origin: np.ndarray,
    direction: np.ndarray,
    sub: np.ndarray,
    without: Solid | None = None,
    depth: int = 0,
) -> np.ndarray:
    """Colour [3, N] seen along rays; at depth 0 materials look through and around, deeper they are simplified."""
    n = direction.shape[1]
    origin = np.broadcast_to(origin, direction.shape)
    nearest = np.full(n, _FAR)
    owner = np.full(n, -1, np.int8)
    down = direction[1] < -1e-4
    np.divide(-origin[1], direction[1], out=nearest, where=down)
    owner[down] = -2
    for index, solid in enumerate(world.solids):
        if solid is without:
            continue
        candidates = _near(solid, origin, direction)
        t_in, t_out = interval(solid, origin[:, candidates], direction[:, candidates])
        closer = (t_out > t_in) & (t_in > 1e-3) & (t_in < nearest[candidates])
        where = candidates[closer]
        nearest[where], owner[where] = t_in[closer], index
    colour = np.empty((3, n), np.float32)
    pick = np.flatnonzero(owner == -1)
    colour[:, pick] = sky_colour(world.scene, direction[:, pick], world.side)
    pick = np.flatnonzero(owner == -2)
    if pick.size:
        colour[:, pick] = _ground(world, origin[:, pick], direction[:, pick], nearest[pick], sub[pick], depth)
    for index, solid in enumerate(world.solids):
        pick = np.flatnonzero(owner == index)
        if pick.size:
            d = direction[:, pick]
            colour[:, pick] = _surface(world, solid, origin[:, pick] + d * nearest[pick], d, sub[pick], depth)
    return colour


def _near(solid: Solid, origin: np.ndarray, direction: np.ndarray, spread: float = 0.0) -> np.ndarray:
    """Indices of the rays that pass the solid's bounding sphere, widened by `spread` per unit of distance."""
    centre, radius = bounding_sphere(solid)
    to = centre[:, None] - origin
    along = dot(to, direction)
    reach = np.float32(radius * 1.01) + np.float32(spread) * np.maximum(along, 0)
    return np.flatnonzero((dot(to, to) - along * along < reach * reach) & (along > -np.float32(radius)))


def _sunlight(world: _World, point: np.ndarray, sub: np.ndarray, without: Solid | None) -> np.ndarray:
    """Share of the key light [3, N] that reaches points; coloured behind glass."""
    share = np.ones(point.shape, np.float32)
    softness = LIGHTS[world.scene.factors.sky].softness
    for solid in world.solids:
        if solid is without:
            continue
        at = _near(solid, point, np.broadcast_to(world.centre, point.shape), softness)
        if not at.size:
            continue
        rays = world.light[:, sub[at], :]
        blocked = hits(solid, point[:, at, None], rays).mean(-1, dtype=np.float32)
        if solid.material != "glass":
            share[:, at] *= 1 - blocked
            continue
        centre, radius = bounding_sphere(solid)
        to = centre[:, None] - point[:, at]
        along = dot(to, world.centre)
        miss = np.maximum(dot(to, to) - along * along, 0) / np.float32((0.62 * radius) ** 2)
        core = np.maximum(1 - miss, 0) ** 2
        tint = PAINT[solid.colour] * (0.55 + 1.5 * core) + np.float32(0.06)
        share[:, at] *= 1 - blocked + blocked * tint
    return share


def _openness(world: _World, x: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Share of the ambient light [N] that reaches the ground: 1 beyond a radius or so from every object."""
    openness = np.ones(x.shape, np.float32)
    for solid in world.solids:
        reach = np.float32(0.75 * solid.radius)
        closeness = np.clip(1 - footprint_distance(solid, x, z) / reach, 0, 1)
        openness *= 1 - np.float32(0.45 if solid.material == "glass" else 0.72) * closeness * closeness
    return openness


def _ground(
    world: _World, origin: np.ndarray, direction: np.ndarray, distance: np.ndarray, sub: np.ndarray, depth: int
) -> np.ndarray:
    """Colour of the ground where rays meet it: key light, sky light, mirror image, haze."""
    point = origin + direction * distance
    point[1] = 0
    scene = world.scene
    light = LIGHTS[scene.factors.sky]
    # Seen through glass or in a mirror the ground is smaller than its distance tells, so its detail fades sooner.
    albedo = ground_colour(scene, point[0], point[2], distance if depth == 0 else distance + 4)
    sun = _sunlight(world, point, sub, None) * (light.key * world.centre[1])
    colour = albedo * (sun + light.ambient * _openness(world, point[0], point[2]))
    gloss = GLOSS[scene.factors.ground]
    if gloss and depth == 0:
        strength = np.float32(gloss) * (1 + 8 * (1 + direction[1]) ** 5)
        mirrored = direction * np.array([[1], [-1], [1]], np.float32)
        colour = colour * (1 - strength) + _trace(world, point, mirrored, sub, depth=1) * strength
    haze = (1 - np.exp(-np.maximum(distance - 7, 0) * np.float32(0.022))) if depth == 0 else np.float32(0.15)
    return colour + (light.horizon - colour) * haze


def _surface(
    world: _World, solid: Solid, point: np.ndarray, direction: np.ndarray, sub: np.ndarray, depth: int
) -> np.ndarray:
    """Colour of a solid where rays meet it, by its material."""
    n = normal(solid, point)
    facing = np.clip(-dot(n, direction), 0, 1)
    reflected = direction + n * (2 * facing)
    if solid.material == "glass":
        return _glass(world, solid, point, direction, n, facing, reflected, sub, depth)
    paint = PAINT[solid.colour]
    if solid.material == "striped":
        paint = _stripes(solid, point, paint)
    lit = _lit(world, solid, point, n, sub)
    diffuse = paint * lit
    shine = np.clip(dot(reflected, world.centre), 0, 1)
    key = LIGHTS[world.scene.factors.sky].key
    if solid.material == "metal":
        fresnel = (1 - facing) ** 4
        tint = np.float32(0.10) + np.float32(0.90) * PAINT[solid.colour] ** np.float32(0.9)
        tint = tint + (1 - tint) * (0.6 * fresnel)
        bulged = _bulge(solid, point, n)
        around = _around(world, solid, point, direction - bulged * (2 * dot(bulged, direction)), sub, depth)
        glint = smoothstep(0.978, 0.992, shine) * 1.6 + 0.25 * shine**24
        return 0.26 * diffuse + 1.05 * tint * around + (0.35 * tint + 0.65) * key * glint
    rim = 0.05 + 0.12 * (1 - facing) ** 4
    sky = sky_colour(world.scene, reflected, world.side, detailed=False)
    strength, exponent = (0.42, 40) if solid.material == "striped" else (0.22, 16)
    gloss = strength * shine**exponent
    return diffuse + rim * 0.5 * sky * (0.5 + 0.5 * n[1]) + key * gloss


def _bulge(solid: Solid, point: np.ndarray, n: np.ndarray) -> np.ndarray:
    """Normals of slightly domed faces: a mirror image of ground and sky on each face, where a flat one shows one."""
    if solid.shape == "ball":
        return n
    centre = np.array([[solid.x], [solid.height * 0.40], [solid.z]], np.float32)
    return normalise(n + (point - centre) * np.float32(0.55 / solid.radius))


def _stripes(solid: Solid, point: np.ndarray, paint: np.ndarray) -> np.ndarray:
    """Bands of the paint and of white, cut through the solid by tilted planes so that they wrap around it."""
    x, z = point[0] - np.float32(solid.x), point[2] - np.float32(solid.z)
    phase = (0.38 * x + 0.90 * point[1] - 0.2 * z) * np.float32(4.6 / solid.height)
    wave = np.abs(np.mod(phase, 1) - 0.5) - 0.25
    return paint + (linear(0.96, 0.96, 0.94) - paint) * np.clip(0.5 + wave / 0.04, 0, 1)


def _lit(world: _World, solid: Solid, point: np.ndarray, n: np.ndarray, sub: np.ndarray) -> np.ndarray:
    """Light [3, N] that falls on a solid: the key light, the sky from above and the ground's bounce from below."""
    light = LIGHTS[world.scene.factors.sky]
    toward = np.clip((dot(n, world.centre) + 0.08) / 1.08, 0, 1)
    sun = light.key * toward
    lit = np.flatnonzero(toward > 0)
    if len(world.solids) > 1 and lit.size:
        sun[:, lit] *= _sunlight(world, point[:, lit], sub[lit], solid)
    up = 0.5 + 0.5 * n[1]
    bounce = GROUND_MEAN[world.scene.factors.ground] * (light.key * 0.35 + light.ambient * 0.5)
    low = 1 - np.clip(point[1] / np.float32(0.45 * solid.height), 0, 1)
    shade = 1 - 0.42 * low * low
    return sun + (light.ambient * up + bounce * (1 - up)) * shade


def _around(
    world: _World, solid: Solid, point: np.ndarray, direction: np.ndarray, sub: np.ndarray, depth: int
) -> np.ndarray:
    """What a mirror ray sees: traced from a camera ray, the bare surroundings otherwise.

    Half of its saturation is taken away, so that the object's own colour wins over that of sky and ground.
    """
    light = LIGHTS[world.scene.factors.sky]
    if depth == 0:
        seen = _trace(world, point, direction, sub, without=solid, depth=1)
    else:
        ground = GROUND_MEAN[world.scene.factors.ground] * (light.key * 0.6 + light.ambient)
        sky = sky_colour(world.scene, direction, world.side, detailed=False)
        seen = np.where(direction[1] > 0, sky, ground)
    grey = (0.3 * seen[0] + 0.5 * seen[1] + 0.2 * seen[2])[None]
    window = 0.4 + 2.4 * smoothstep(0.55, 0.80, dot(direction, world.centre))
    return 0.5 * seen + 0.5 * grey + light.fill * window


def _refract(direction: np.ndarray, n: np.ndarray, ratio: np.float32) -> tuple[np.ndarray, np.ndarray]:
    """Refracted directions (Snell), and where there is none because of total internal reflection."""
    cosine = -dot(direction, n)
    k = 1 - ratio * ratio * (1 - cosine * cosine)
    return direction * ratio + n * (ratio * cosine - np.sqrt(np.maximum(k, 0))), k < 0


def _glass(
    world: _World,
    solid: Solid,
    point: np.ndarray,
    direction: np.ndarray,
    n: np.ndarray,
    facing: np.ndarray,
    reflected: np.ndarray,
    sub: np.ndarray,
    depth: int,
) -> np.ndarray:
    """Colour of glass: what is behind, refracted twice and dyed on the way, a mirror image and a bright rim."""
    inside, _ = _refract(direction, n, np.float32(1 / _REFRACTION))
    _, t_out = interval(solid, point, inside)
    t_out = np.clip(t_out, 0, 4)
    exit_point = point + inside * t_out
    out_n = -normal(solid, exit_point)
    outside, total = _refract(inside, out_n, np.float32(_REFRACTION))
    bounced = inside - out_n * (2 * dot(inside, out_n))
    outside = normalise(np.where(total, bounced, outside))
    outside[1] = np.where((exit_point[1] < 1e-2) & (outside[1] < 0), -outside[1], outside[1])
    paint = PAINT[solid.colour]
    absorption = -np.log(np.clip(paint, 0.02, 0.95)) * np.float32(0.50 / solid.radius)
    seen = _around(world, solid, exit_point, outside, sub, depth) * np.exp(-absorption * t_out)
    light = LIGHTS[world.scene.factors.sky]
    # A little light scatters inside, so that the colour holds even in front of a dark background.
    glow = paint * np.float32(0.10 + 0.14 * light.key.mean() + 0.20 * light.ambient.mean())
    fresnel = 0.05 + 0.85 * (1 - facing) ** 4
    around = _around(world, solid, point, reflected, sub, 1)
    shine = np.clip(dot(reflected, world.centre), 0, 1)
    glint = smoothstep(0.985, 0.994, shine) * 2.2 + 0.2 * shine**30
    rim = paint * (0.45 * (1 - facing) ** 2.5) * (light.key + light.ambient)
    return (seen + glow) * (1 - fresnel) + rim + around * fresnel + light.key * glint
