"""The words that the bundled scene model understands, and captions as lists of word numbers.

A caption is read word by word. Synonyms become the canonical word ("sphere" -> "ball") and filler is skipped, so that
``encode("a photo of a big sphere")`` equals ``encode("a a large ball")``. A word outside the vocabulary is an error,
never a silent "unknown": the model has not learnt it.
"""

from __future__ import annotations

import difflib
import re

from .errors import VocabularyError
from .scenes.scene import COLOURS, GROUNDS, MATERIALS, SHAPES, SIZES, SKIES

#: Number of words in the longest caption the model reads.
MAX_WORDS = 24

#: The padding word's number; it never stands in a caption.
PAD = 0

#: The canonical words, in the order of their numbers; `encode` gives only these.
CANONICAL = (
    *("<pad>", "a", "on", "under", "to", "the", "left", "right", "behind", "sky"),
    *SIZES,
    *COLOURS,
    *MATERIALS,
    *SHAPES,
    *GROUNDS,
    *SKIES,
)

#: Words that mean the same as a canonical word.
SYNONYMS = {
    "an": "a",
    "beneath": "under",
    "below": "under",
    "big": "large",
    "huge": "large",
    "little": "small",
    "tiny": "small",
    "crimson": "red",
    "scarlet": "red",
    "amber": "orange",
    "golden": "yellow",
    "emerald": "green",
    "turquoise": "cyan",
    "teal": "cyan",
    "aqua": "cyan",
    "azure": "blue",
    "violet": "purple",
    "rose": "pink",
    "dull": "matte",
    "plain": "matte",
    "metallic": "metal",
    "chrome": "metal",
    "crystal": "glass",
    "transparent": "glass",
    "stripy": "striped",
    "banded": "striped",
    "sphere": "ball",
    "orb": "ball",
    "globe": "ball",
    "box": "cube",
    "block": "cube",
    "tube": "cylinder",
    "can": "cylinder",
    "beach": "sand",
    "desert": "sand",
    "lawn": "grass",
    "meadow": "grass",
    "planks": "wood",
    "floorboards": "wood",
    "checkerboard": "tiles",
    "sunny": "clear",
    "overcast": "cloudy",
    "grey": "cloudy",
    "gray": "cloudy",
    "dusk": "sunset",
    "evening": "sunset",
    "starry": "night",
    "moonlit": "night",
}

#: Words that carry no meaning here and are skipped.
FILLER = ("of", "and", "with", "in", "is", "it", "photo", "picture", "image", "there", "standing")

#: All 96 words a caption may use; a canonical word's place is its number.
VOCABULARY = (*CANONICAL, *SYNONYMS, *FILLER)

_NUMBER = {word: number for number, word in enumerate(CANONICAL)}
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_SIDE = re.compile(r"\b(left|right)\b", re.IGNORECASE)


def words(caption: str) -> list[str]:
    """Split a caption into its words, in lower case; punctuation and edit brackets do not count."""
    return _WORD.findall(caption.lower())


def encode(caption: str) -> list[int]:
    """Number the words of a caption.

    Parameters
    ----------
    caption
        Words of `VOCABULARY` in any case, with any punctuation. The empty caption has no words.

    Returns
    -------
    list of int
        At most `MAX_WORDS` numbers, each in ``1 .. len(CANONICAL) - 1``, without padding.

    Raises
    ------
    VocabularyError
        If a word is unknown (the message names the nearest known words), or there are more than `MAX_WORDS` words.
    """
    numbers = []
    for word in words(caption):
        if word in FILLER:
            continue
        canonical = SYNONYMS.get(word, word)
        if canonical not in _NUMBER:
            raise VocabularyError(f"unknown word {word!r} in {caption!r}", _suggestion(word))
        numbers.append(_NUMBER[canonical])
    if len(numbers) > MAX_WORDS:
        raise VocabularyError(
            f"the caption has {len(numbers)} words, more than {MAX_WORDS}",
            'the form is "a large blue metal ball on sand under a sunset sky, a red cone to the right"',
        )
    return numbers


def decode(numbers: list[int]) -> str:
    """Spell out word numbers in canonical words; padding is left out."""
    return " ".join(CANONICAL[number] for number in numbers if number != PAD)


def nearest(word: str, count: int = 3) -> list[str]:
    """Known words that are spelt most like a word, best first; at least one."""
    known = VOCABULARY[1:]
    return difflib.get_close_matches(word.lower(), known, n=count, cutoff=0.5) or difflib.get_close_matches(
        word.lower(), known, n=1, cutoff=0.0
    )


def _suggestion(word: str) -> str:
    groups = (SIZES, COLOURS, MATERIALS, SHAPES, GROUNDS, SKIES)
    return f"nearest words: {', '.join(nearest(word))} (the scene model knows {'; '.join(' '.join(g) for g in groups)})"


def mirror(caption: str) -> str:
    """Swap the words left and right in a caption, as flipping the picture does."""

    def swapped(match: re.Match[str]) -> str:
        word = match.group()
        other = "right" if word.lower() == "left" else "left"
        if word.isupper():
            return other.upper()
        return other.capitalize() if word[0].isupper() else other

    return _SIDE.sub(swapped, caption)
