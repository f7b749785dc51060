"""Settings of an edit, with the paper's values as defaults."""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from bitresedit.errors import BitResEditError

Lock = Literal["off", "auto", "on"]
Contrast = Literal["prompt", "phrase"]
Null = Literal["empty", "cfg_uncond"]
Solver = Literal["exact", "bisect4"]
Composite = Literal["off", "pixel"]


@dataclass(frozen=True)
class EditConfig:
    """How strongly to edit, and what to hold on to.

    Parameters
    ----------
    cfg
        Classifier-free guidance ``s``; 1 follows the target prompt alone.
    eta
        Source-negative tilt at the coarsest scale; it falls linearly to 0 at the last one.
    delta
        Trust region of each bit in nats.
    linf
        Largest change of each bit's log-odds.
    tau, top_p
        Temperature and nucleus of the sampler.
    lock
        Structure lock: keep the source's codes at the first ``lock_scales`` scales. ``"auto"`` locks when the mask
        covers at least half of the picture.
    lock_scales
        Number of locked scales.
    contrast
        What the tilt compares: the whole ``"prompt"``, or only the ``"phrase"`` that differs (bracketed or found by a
        word diff).
    null
        What guidance moves away from: the ``"empty"`` prompt or the backbone's learned ``"cfg_uncond"``.
    solver
        Solver of the trust region, ``"exact"`` or ``"bisect4"``.
    composite
        ``"pixel"`` blends the source picture back where the gate is closed.

    Raises
    ------
    BitResEditError
        If a value is out of range or not among the choices.

    References
    ----------
    Paper, section 5 (implementation details).
    """

    cfg: float = 4.0392
    eta: float = 2.3898
    delta: float = 0.3
    linf: float = 5.0
    tau: float = 1.0
    top_p: float = 0.97
    lock_scales: int = 3
    lock: Lock = "off"
    contrast: Contrast = "prompt"
    null: Null = "empty"
    solver: Solver = "exact"
    composite: Composite = "off"

    def __post_init__(self) -> None:
        for name in CHOICES:
            _check_choice(name, getattr(self, name))
        at_least_zero = ("delta", "linf", "lock_scales")
        fits = {name: (getattr(self, name) >= 0, "at least 0") for name in at_least_zero}
        # An infinite limit is no limit; an infinite strength is no number times zero.
        fits |= {name: (0 <= getattr(self, name) < math.inf, "at least 0 and finite") for name in ("cfg", "eta")}
        fits |= {"tau": (self.tau > 0, "above 0"), "top_p": (0 < self.top_p <= 1, "above 0 and at most 1")}
        for name, (fit, allowed) in fits.items():
            if not fit:
                raise BitResEditError(f"{name} is {getattr(self, name)}, out of range", f"it must be {allowed}")

    def tilt(self, k: int, scales: int) -> float:
        """Give the tilt at scale ``k``: ``eta_k = eta (1 - k / (K - 1))``, and 0 if there is one scale only."""
        return 0.0 if scales == 1 else self.eta * (1 - k / (scales - 1))

    def with_text(self, settings: Mapping[str, str]) -> EditConfig:
        """Give a copy with settings read from text, as in ``{"eta": "3"}``.

        Raises
        ------
        BitResEditError
            If there is no such setting, or its value does not read as one.
        """
        values: dict[str, Any] = {}
        for name, text in settings.items():
            if name not in _KINDS:
                raise BitResEditError(f"there is no setting '{name}'", f"settings: {', '.join(_KINDS)}")
            try:
                values[name] = _KINDS[name](text)
            except ValueError:
                raise BitResEditError(f"{name} must be a number, got '{text}'") from None
            if name in CHOICES:
                _check_choice(name, text)
        return dataclasses.replace(self, **values)


def _check_choice(name: str, value: str) -> None:
    if value not in CHOICES[name]:
        raise BitResEditError(f"{name} is '{value}'", f"choose from {', '.join(CHOICES[name])}")


CHOICES: dict[str, tuple[str, ...]] = {
    "lock": typing.get_args(Lock),
    "contrast": typing.get_args(Contrast),
    "null": typing.get_args(Null),
    "solver": typing.get_args(Solver),
    "composite": typing.get_args(Composite),
}
_KINDS = {field.name: type(field.default) for field in dataclasses.fields(EditConfig)}
