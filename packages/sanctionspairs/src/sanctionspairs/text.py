"""Text as sanctions lists write it: scripts, transliteration, tokens, sounds, numbers, legal forms."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from functools import lru_cache

from fingerprints.cleanup import clean_name_ascii
from rigour.names import extract_org_types
from rigour.text import metaphone
from rigour.text.scripts import codepoint_script

_NUMBER = re.compile(r"\d+")
_ROMAN = re.compile(r"\b[IVX]{1,4}\b")
_NOT_ALNUM = re.compile(r"[\W_]+")


@lru_cache(maxsize=200_000)
def latin(text: str) -> str:
    """Return lower-case ASCII words, by ICU transliteration; empty if nothing is left."""
    return clean_name_ascii(text) or ""


def tokens(text: str) -> list[str]:
    """Return the transliterated words of a text."""
    return latin(text).split()


@lru_cache(maxsize=100_000)
def sound(token: str) -> str:
    """Return the metaphone of a transliterated word; empty for digits."""
    return metaphone(token) if token.isalpha() else ""


@lru_cache(maxsize=4096)
def _script(character: str) -> str | None:
    if not character.isalpha():
        return None
    found = codepoint_script(ord(character))
    return None if found in ("Common", "Inherited") else found


@lru_cache(maxsize=100_000)
def dominant_script(text: str) -> str | None:
    """Return the script that most letters of a text are in (``Latin``, ``Cyrillic``, ``Han``, ...), or None.

    Kana count as Han: Japanese mixes them within a name.
    """
    counts = Counter(_script(character) for character in text)
    counts.pop(None, None)
    for kana in ("Hiragana", "Katakana"):
        if kana in counts:
            counts["Han"] += counts.pop(kana)
    return max(sorted(counts, key=str), key=lambda name: counts[name]) if counts else None


def numbers(text: str) -> frozenset[str]:
    """Return the numbers in a name, without leading zeros, Roman numerals included."""
    digits = {found.lstrip("0") or "0" for found in _NUMBER.findall(text)}
    roman = {_roman(found) for found in _ROMAN.findall(text)} if digits or len(text.split()) > 1 else set()
    return frozenset(digits | (roman - {""}))


def _roman(text: str) -> str:
    values = {"I": 1, "V": 5, "X": 10}
    total = 0
    for here, after in zip(text, [*text[1:], ""], strict=True):
        total += -values[here] if values.get(after, 0) > values[here] else values[here]
    return str(total) if len(text) > 1 else ""


@lru_cache(maxsize=100_000)
def org_forms(name: str) -> frozenset[str]:
    """Return the legal forms in a company's name, as the library's generic ones (``llc``, ``jsc``, ...)."""
    return frozenset(
        generic or form for form, generic in extract_org_types(unicodedata.normalize("NFC", name.lower()), generic=True)
    )


def bare_identifier(value: str) -> str:
    """Return an identifier without its punctuation and case: what is left when sources only format differently."""
    return _NOT_ALNUM.sub("", value).casefold()
