from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitresedit.errors import PromptError, VocabularyError
from bitresedit.scenes import FACTORS, sample_factors, sample_scene
from bitresedit.text import (
    CANONICAL,
    FILLER,
    MAX_WORDS,
    PAD,
    SYNONYMS,
    VOCABULARY,
    decode,
    encode,
    mirror,
    nearest,
    words,
)

LONGEST = "a large orange striped cylinder on grass under a cloudy sky, an orange cylinder to the right"


def test_the_vocabulary_has_96_different_words() -> None:
    assert len(VOCABULARY) == 96
    assert len(set(VOCABULARY)) == 96
    assert VOCABULARY[PAD] == "<pad>"
    assert set(SYNONYMS.values()) <= set(CANONICAL)
    assert not set(SYNONYMS) & set(CANONICAL)


def test_every_value_of_every_factor_is_a_canonical_word() -> None:
    assert set(itertools.chain(*FACTORS.values())) <= set(CANONICAL)


def test_every_caption_encodes_to_its_own_canonical_words() -> None:
    rng = np.random.default_rng(0)
    used: set[int] = set()
    for _ in range(250):
        caption = sample_factors(rng).caption()
        numbers = encode(caption)
        used |= set(numbers)
        assert decode(numbers) == caption.replace(",", "").replace("an orange", "a orange")
    # Captions use all canonical words but padding, so the model has learnt each.
    assert used == set(range(1, len(CANONICAL)))


def test_the_longest_caption_fits() -> None:
    assert len(encode(LONGEST)) == 17 <= MAX_WORDS


@pytest.mark.parametrize(("synonym", "canonical"), SYNONYMS.items())
def test_a_synonym_has_the_number_of_its_canonical_word(synonym: str, canonical: str) -> None:
    assert encode(synonym) == encode(canonical) == [CANONICAL.index(canonical)]


def test_filler_case_and_punctuation_do_not_count() -> None:
    assert encode("A photo of [a LITTLE scarlet orb], standing on the lawn!") == encode(
        "a a small red ball on the grass"
    )
    assert encode(" ".join(FILLER)) == []
    assert encode("") == encode(" ,.;[]\n") == []


@pytest.mark.parametrize(
    ("caption", "word", "suggestion"),
    [
        ("a gren ball", "gren", "green"),
        ("a red bal", "bal", "ball"),
        ("a large metl cube", "metl", "metal"),
        ("a cilinder on sand", "cilinder", "cylinder"),
        ("a ball under a sunsett sky", "sunsett", "sunset"),
    ],
)
def test_an_unknown_word_is_named_with_the_nearest_known_ones(caption: str, word: str, suggestion: str) -> None:
    with pytest.raises(VocabularyError) as caught:
        encode(caption)
    message = str(caught.value)
    assert f"unknown word '{word}'" in message
    assert f"nearest words: {suggestion}" in message
    assert "\n" not in message
    assert isinstance(caught.value, PromptError)


@pytest.mark.parametrize(
    "caption", ["a ball2", "a 3 ball", "a röd ball", "a red-hot ball", "a <pad> ball", "a dog's ball"]
)
def test_digits_accents_compounds_and_the_padding_word_are_unknown(caption: str) -> None:
    with pytest.raises(VocabularyError, match="unknown word"):
        encode(caption)


def test_a_word_like_no_other_still_gets_a_suggestion() -> None:
    assert len(nearest("zzzzzz")) == 1
    assert nearest("zzzzzz")[0] in VOCABULARY[1:]


def test_more_than_24_words_are_refused_and_24_are_not() -> None:
    assert len(encode(" ".join(["red"] * 24))) == 24
    with pytest.raises(VocabularyError, match="25 words, more than 24"):
        encode(" ".join(["red"] * 25))


@given(st.lists(st.sampled_from(VOCABULARY[1:]), max_size=MAX_WORDS))
def test_any_words_of_the_vocabulary_encode_in_order(chosen: list[str]) -> None:
    kept = [SYNONYMS.get(word, word) for word in chosen if word not in FILLER]
    assert decode(encode(" ".join(chosen))).split() == kept


def test_mirroring_swaps_left_and_right_and_nothing_else() -> None:
    assert mirror("a cone to the left, LEFT or Right of upright leftovers") == (
        "a cone to the right, RIGHT or Left of upright leftovers"
    )
    rng = np.random.default_rng(1)
    for _ in range(50):
        scene = sample_scene(rng)
        assert mirror(scene.caption()) == scene.mirrored().caption()
        assert mirror(mirror(scene.caption())) == scene.caption()


def test_words_are_split_at_punctuation_only() -> None:
    assert words("A red-hot, [blue] ball.") == ["a", "red-hot", "blue", "ball"]
