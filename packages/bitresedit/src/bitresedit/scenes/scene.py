"""Scenes: what is in a picture, where it stands, and the caption that says so.

A scene is a set of named factors (the caption tells all of them) plus a little jitter of the camera, the light and
the positions (the caption tells none of it). Two scenes that differ in one factor share all jitter, so their renders
differ only where the edit shows.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

SHAPES = ("ball", "cube", "cylinder", "cone")
COLOURS = ("red", "orange", "yellow", "green", "cyan", "blue", "purple", "pink")
MATERIALS = ("matte", "metal", "glass", "striped")
SIZES = ("small", "large")
GROUNDS = ("sand", "grass", "wood", "tiles", "snow")
SKIES = ("clear", "cloudy", "sunset", "night")
SIDES = ("left", "right", "behind")

#: Every factor of a scene and the values it takes; the second object's three are absent when there is none.
FACTORS: dict[str, tuple[str, ...]] = {
    "size": SIZES,
    "colour": COLOURS,
    "material": MATERIALS,
    "shape": SHAPES,
    "ground": GROUNDS,
    "sky": SKIES,
    "second_colour": COLOURS,
    "second_shape": SHAPES,
    "side": SIDES,
}
SECOND_FACTORS = ("second_colour", "second_shape", "side")
#: The factors that a short caption may leave out.
OPTIONAL_FACTORS = ("size", "colour", "material", "ground", "sky")

_FLIP = {"left": "right", "right": "left"}


def _noun(words: Sequence[str | None]) -> str:
    """Put words together with their article; only one word of the vocabulary begins with a vowel."""
    return " ".join(["an" if words[0] == "orange" else "a", *map(str, words)])


@dataclass(frozen=True)
class Factors:
    """What a caption says: the main object, the surroundings and, if present, the second object.

    Raises
    ------
    ValueError
        If a factor has an unknown value, or the second object is only partly given.
    """

    size: str
    colour: str
    material: str
    shape: str
    ground: str
    sky: str
    second_colour: str | None = None
    second_shape: str | None = None
    side: str | None = None

    def __post_init__(self) -> None:
        absent = [getattr(self, name) is None for name in SECOND_FACTORS]
        if any(absent) and not all(absent):
            raise ValueError("a second object needs a colour, a shape and a side")
        for name, values in FACTORS.items():
            value = getattr(self, name)
            if value not in values and not (value is None and name in SECOND_FACTORS):
                raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(values)}")

    @property
    def has_second(self) -> bool:
        """Whether there is a second object."""
        return self.second_shape is not None

    def caption(self, without: Collection[str] = ()) -> str:
        """Describe the factors in the one canonical form that `parse_caption` reads back.

        Parameters
        ----------
        without
            Names from `OPTIONAL_FACTORS` that the caption leaves out, as people do; such a short caption cannot be
            read back.
        """
        told = [getattr(self, name) for name in ("size", "colour", "material") if name not in without]
        text = _noun([*told, self.shape])
        if "ground" not in without:
            text += f" on {self.ground}"
        if "sky" not in without:
            text += f" under a {self.sky} sky"
        if self.has_second:
            place = "behind" if self.side == "behind" else f"to the {self.side}"
            text += f", {_noun([self.second_colour, self.second_shape])} {place}"
        return text

    def mirrored(self) -> Factors:
        """Swap left and right."""
        return replace(self, side=_FLIP.get(self.side, self.side)) if self.side else self


def _one_of(name: str, values: Sequence[str]) -> str:
    return f"(?P<{name}>{'|'.join(values)})"


_CAPTION = re.compile(
    f"a {_one_of('size', SIZES)} {_one_of('colour', COLOURS)} {_one_of('material', MATERIALS)} "
    f"{_one_of('shape', SHAPES)} on {_one_of('ground', GROUNDS)} under a {_one_of('sky', SKIES)} sky"
    f"(?:, an? {_one_of('second_colour', COLOURS)} {_one_of('second_shape', SHAPES)} "
    "(?:to the )?(?P<side>left|right|behind))?"
)


def parse_caption(caption: str) -> Factors:
    """Read the factors back from a canonical caption.

    Parameters
    ----------
    caption
        A caption as `Scene.caption` writes it.

    Returns
    -------
    Factors
        The factors it names; ``parse_caption(f.caption()) == f``.

    Raises
    ------
    ValueError
        If the caption is not in the canonical form.
    """
    match = _CAPTION.fullmatch(caption)
    factors = Factors(**match.groupdict()) if match else None
    if factors is None or factors.caption() != caption:
        raise ValueError(f"not a canonical scene caption: {caption!r}")
    return factors


@dataclass(frozen=True)
class Solid:
    """One object standing on the ground plane y = 0.

    Attributes
    ----------
    shape, colour, material
        Names from `SHAPES`, `COLOURS`, `MATERIALS`.
    x, z
        Ground position of its axis (world units; z points away from the camera).
    radius
        Radius of the ball, cylinder or cone base; half the edge of the cube (world units).
    height
        Height above the ground (world units).
    yaw
        Turn about the vertical axis (radians).
    """

    shape: str
    colour: str
    material: str
    x: float
    z: float
    radius: float
    height: float
    yaw: float


#: Radius and height of each shape at scale 1, chosen so that all fill about the same part of the picture.
_DIMENSIONS = {"ball": (1.0, 2.0), "cube": (0.79, 1.58), "cylinder": (0.80, 1.78), "cone": (1.0, 2.06)}
_SCALE = {"small": 0.73, "large": 1.0}
_SECOND_SCALE = {"left": 0.42, "right": 0.42, "behind": 0.62}


@dataclass(frozen=True)
class Scene:
    """A picture to render: the factors, the jitter that no caption tells, and whether it is seen in a mirror.

    Attributes
    ----------
    factors
        What the unmirrored picture shows.
    texture
        Seed of the textures of ground and sky.
    camera
        Shift of the eye to the right and up, and of its distance (world units).
    light
        Light azimuth (radians, positive to the right, 0 at the camera's side) and elevation jitter (radians).
    shift
        Shift of the main object on the ground, to the right and away (world units).
    yaw
        Turn of the main and the second object (radians).
    flipped
        Whether the picture is flipped left to right.
    """

    factors: Factors
    texture: int = 0
    camera: tuple[float, float, float] = (0.0, 0.0, 0.0)
    light: tuple[float, float] = (-0.9, 0.0)
    shift: tuple[float, float] = (0.0, 0.0)
    yaw: tuple[float, float] = (0.5, 0.5)
    flipped: bool = False

    @property
    def shown(self) -> Factors:
        """The factors as seen in the picture: those of the scene with left and right swapped if it is flipped."""
        return self.factors.mirrored() if self.flipped else self.factors

    def caption(self, without: Collection[str] = ()) -> str:
        """Describe the picture in canonical words; see `Factors.caption`."""
        return self.shown.caption(without)

    def mirrored(self) -> Scene:
        """Flip the picture left to right; its caption swaps left and right."""
        return replace(self, flipped=not self.flipped)

    def changed(self, **factors: str | None) -> Scene:
        """Change factors of the picture and keep everything else, jitter included.

        Parameters
        ----------
        **factors
            New values by factor name, as seen in the picture; ``second_shape=None`` removes the second object.

        Raises
        ------
        ValueError
            If a value is unknown or the second object would be only partly given.
        """
        if factors.get("second_shape", "") is None:
            factors = {**factors, "second_colour": None, "side": None}
        shown = replace(self.shown, **factors)
        return replace(self, factors=shown.mirrored() if self.flipped else shown)

    def solids(self) -> tuple[Solid, ...]:
        """Place the objects: the main one first (world units, before any flip)."""
        f = self.factors
        scale = _SCALE[f.size]
        radius, height = (scale * value for value in _DIMENSIONS[f.shape])
        x, z = self.shift
        main = Solid(f.shape, f.colour, f.material, x, z, radius, height, self.yaw[0])
        if f.second_shape is None or f.second_colour is None or f.side is None:
            return (main,)
        # The second object's place depends on its side and on jitter only, so that an edit of the main object
        # leaves it where it is; the same holds for the main object, which makes room on the side of `shift`.
        small = _SECOND_SCALE[f.side]
        radius, height = (small * value for value in _DIMENSIONS[f.second_shape])
        if f.side == "behind":
            direction = -1.0 if x > 0 else 1.0
            dx, dz = x + direction * 1.48, z + 2.2
        else:
            direction = 1.0 if f.side == "right" else -1.0
            dx, dz = direction * 1.10, z - 0.2
        second = Solid(f.second_shape, f.second_colour, "matte", dx, dz, radius, height, self.yaw[1])
        return (main, second)


def _pick(rng: np.random.Generator, values: Sequence[str]) -> str:
    return values[int(rng.integers(len(values)))]


def sample_factors(rng: np.random.Generator) -> Factors:
    """Draw all factors uniformly; one scene in two has a second object, in another colour than the main one."""
    main = {name: _pick(rng, FACTORS[name]) for name in FACTORS if name not in SECOND_FACTORS}
    if rng.random() < 0.5:
        return Factors(**main)
    others = [colour for colour in COLOURS if colour != main["colour"]]
    return Factors(**main, second_colour=_pick(rng, others), second_shape=_pick(rng, SHAPES), side=_pick(rng, SIDES))


def sample_scene(rng: np.random.Generator, factors: Factors | None = None) -> Scene:
    """Draw a scene.

    Parameters
    ----------
    rng
        Source of randomness: the same generator state gives the same scene.
    factors
        Fixed factors; by default they are drawn too.

    Returns
    -------
    Scene
        An unflipped scene.
    """
    if factors is None:
        factors = sample_factors(rng)
    camera = rng.uniform((-0.12, -0.06, -0.1), (0.12, 0.06, 0.1))
    azimuth = math.copysign(rng.uniform(0.75, 1.15), rng.random() - 0.5)
    elevation = rng.uniform(-0.08, 0.08)
    toward = {"left": 1.0, "right": -1.0, "behind": math.copysign(1.0, rng.random() - 0.5)}
    x = 0.33 * toward[factors.side] + rng.uniform(-0.05, 0.05) if factors.side else rng.uniform(-0.33, 0.33)
    z = rng.uniform(-0.06, 0.06)
    # Each cube turns its broad side to the light: a free turn is a detail that no coarse scale tells, and a small
    # model that samples each cell's bits on their own then blurs the edge between the faces.
    yaw = -math.copysign(1.0, azimuth) * rng.uniform(0.48, 0.62, size=2)
    return Scene(
        factors,
        texture=int(rng.integers(2**31)),
        camera=(float(camera[0]), float(camera[1]), float(camera[2])),
        light=(azimuth, float(elevation)),
        shift=(float(x), float(z)),
        yaw=(float(yaw[0]), float(yaw[1])),
    )
