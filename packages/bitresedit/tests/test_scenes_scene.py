"""Factors, captions and edits of scenes, and what an edit may change in the picture."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitresedit.scenes import (
    FACTORS,
    KINDS,
    OPTIONAL_FACTORS,
    SAMPLE,
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
from bitresedit.scenes.scene import SECOND_FACTORS

FACTS = Factors("large", "red", "matte", "ball", "sand", "clear")


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
