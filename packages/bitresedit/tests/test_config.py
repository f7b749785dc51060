from __future__ import annotations

import math

import pytest

from bitresedit.bits_reference import tilt_schedule
from bitresedit.config import EditConfig
from bitresedit.errors import BitResEditError


def test_the_defaults_are_the_papers():
    config = EditConfig()
    assert (config.cfg, config.eta, config.delta, config.linf) == (4.0392, 2.3898, 0.3, 5.0)
    assert (config.tau, config.top_p, config.lock_scales, config.lock) == (1.0, 0.97, 3, "off")


@pytest.mark.parametrize("scales", [1, 2, 6, 13])
def test_the_tilt_falls_linearly_to_nothing_at_the_last_scale(scales):
    config = EditConfig()
    assert [config.tilt(k, scales) for k in range(scales)] == pytest.approx(tilt_schedule(2.3898, scales))


def test_settings_are_read_from_text():
    config = EditConfig().with_text({"eta": "3", "delta": "inf", "lock": "auto", "lock_scales": "2"})
    assert (config.eta, config.delta, config.lock, config.lock_scales) == (3.0, math.inf, "auto", 2)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"eat": "3"}, "no setting 'eat'; settings: cfg, eta"),
        ({"eta": "three"}, "eta must be a number"),
        ({"lock_scales": "1.5"}, "lock_scales must be a number"),
        ({"lock": "maybe"}, "lock is 'maybe'; choose from off, auto, on"),
        ({"solver": "newton"}, "choose from exact, bisect4"),
        ({"eta": "-1"}, "out of range"),
        ({"eta": "inf"}, "finite"),
        ({"cfg": "inf"}, "finite"),
        ({"delta": "nan"}, "out of range"),
        ({"tau": "0"}, "out of range"),
        ({"top_p": "1.5"}, "out of range"),
    ],
)
def test_bad_settings_are_named(settings, match):
    with pytest.raises(BitResEditError, match=match):
        EditConfig().with_text(settings)
