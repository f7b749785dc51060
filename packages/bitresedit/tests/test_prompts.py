from __future__ import annotations

import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bitresedit.errors import PromptError
from bitresedit.prompts import (
    checked_prompts,
    contrast_phrases,
    same_prompt,
    shared_positions,
    strip_brackets,
    warn_if_same,
)

NAMES = ("a", "red", "blue", "ball", "cube", "on", "sand", "under", "the", "sky")
WORDS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=8)


def test_brackets_are_removed_and_spaces_kept_single():
    assert strip_brackets("a [red]  ball [on the sand]") == "a red ball on the sand"
    assert strip_brackets("a cat[with a hat]") == "a cat with a hat"


@pytest.mark.parametrize("text", ["a [red ball", "a red] ball", "a [[red]] ball", "a ]red[ ball"])
def test_unpaired_brackets_are_refused(text):
    with pytest.raises(PromptError, match="do not pair"):
        strip_brackets(text)


@pytest.mark.parametrize(("source", "target", "match"), [("a ball", " [] ", "target"), ("", "a ball", "source")])
def test_empty_prompts_are_refused(source, target, match):
    with pytest.raises(PromptError, match=f"the {match} prompt is empty"):
        checked_prompts(source, target)


def test_equal_prompts_are_warned_about():
    assert checked_prompts("a Red ball", "a [red] ball") == ("a Red ball", "a red ball")
    with pytest.warns(UserWarning, match="guidance only"):
        warn_if_same("a Red ball", "a [red] ball")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_same("a red ball", "a blue ball")
    assert same_prompt("A  red ball", "a red ball")


@pytest.mark.parametrize(
    ("source", "target", "phrases"),
    [
        ("a red ball on sand", "a blue cube on sand", ("red ball", "blue cube")),
        ("a [red] ball on sand", "a [blue] ball on sand", ("red", "blue")),
        ("a cat on a mat", "a cat with a hat on a mat", ("a cat on a mat", "with a hat")),
        ("a red ball, a cone", "a red ball", ("a cone", "a red ball")),
        ("a ball", "a ball", ("a ball", "a ball")),
        ("a ball in the [green] grass", "a ball in the grass", ("green", "a ball in the grass")),
    ],
)
def test_phrases_are_the_brackets_or_the_differing_words(source, target, phrases):
    assert contrast_phrases(source, target) == phrases


@settings(max_examples=40)
@given(WORDS, WORDS)
def test_shared_positions_pair_equal_words_in_order(source, target):
    pairs = shared_positions([*source, "", ""], [*target, ""])
    assert all(source[a] == target[b] for a, b in pairs)
    assert pairs == sorted(pairs)
    assert len({a for a, _ in pairs}) == len({b for _, b in pairs}) == len(pairs)


@given(WORDS)
def test_equal_prompts_share_every_position(words):
    assert shared_positions(words, words) == [(i, i) for i in range(len(words))]
