"""Source and target prompts: checks, bracketed spans, and the words two prompts share."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from difflib import SequenceMatcher

from bitresedit.errors import PromptError


def strip_brackets(text: str) -> str:
    """Remove the square brackets that mark an edited span, as PIE-Bench writes them.

    ``"a [red] ball"`` becomes ``"a red ball"``.

    Raises
    ------
    PromptError
        If brackets do not pair.
    """
    if re.sub(r"[^\[\]]", "", text) != "[]" * text.count("["):
        raise PromptError(f"the brackets of the prompt '{text}' do not pair", "write [ and ] around a changed span")
    return " ".join(text.replace("[", " ").replace("]", " ").split())


def bracketed(text: str) -> str:
    """Give the words inside a prompt's brackets, or an empty string."""
    return " ".join(" ".join(re.findall(r"\[([^\[\]]*)\]", text)).split())


def checked_prompts(source: str, target: str) -> tuple[str, str]:
    """Strip the brackets of both prompts and refuse empty ones.

    Raises
    ------
    PromptError
        If a prompt is not text or empty, or its brackets do not pair.
    """
    for name, text in (("source", source), ("target", target)):
        if not isinstance(text, str):
            raise PromptError(f"the {name} prompt is {text!r}, not text")
    source_text, target_text = strip_brackets(source), strip_brackets(target)
    if not target_text:
        raise PromptError("the target prompt is empty", "describe the picture as it should become")
    if not source_text:
        raise PromptError("the source prompt is empty", "describe the picture as it is")
    return source_text, target_text


def warn_if_same(source: str, target: str) -> None:
    """Warn about equal prompts: they are allowed, but there is nothing to contrast, so only guidance acts."""
    if same_prompt(strip_brackets(source), strip_brackets(target)):
        warnings.warn(
            "the source and target prompts are the same: the mask is re-drawn with guidance only", stacklevel=3
        )


def same_prompt(source: str, target: str) -> bool:
    """Tell whether two prompts have the same words, whatever their case."""
    return source.casefold().split() == target.casefold().split()


def contrast_phrases(source: str, target: str) -> tuple[str, str]:
    """Give the two spans that differ: those in brackets, else by comparing the words.

    ``("a red ball on sand", "a blue cube on sand")`` gives ``("red ball", "blue cube")``. Where one side has no such
    span (a word was only added or removed), that side's whole prompt stands in for it.

    Parameters
    ----------
    source, target
        Prompts, brackets allowed.

    Returns
    -------
    tuple of str
        Source phrase and target phrase.
    """
    before, after = strip_brackets(source).split(), strip_brackets(target).split()
    blocks = _matches(before, after)
    phrase_source = bracketed(source) or " ".join(_unmatched(before, [(a, n) for a, _, n in blocks]))
    phrase_target = bracketed(target) or " ".join(_unmatched(after, [(b, n) for _, b, n in blocks]))
    return phrase_source or " ".join(before), phrase_target or " ".join(after)


def shared_positions(source: Sequence[str], target: Sequence[str]) -> list[tuple[int, int]]:
    """Pair the positions of the words that two token sequences share, in order; padding (empty) never pairs."""
    return [(a + i, b + i) for a, b, size in _matches(source, target) for i in range(size) if source[a + i]]


def _matches(source: Sequence[str], target: Sequence[str]) -> list[tuple[int, int, int]]:
    before, after = [_key(word) for word in source], [_key(word) for word in target]
    return [tuple(block) for block in SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()]


def _key(word: str) -> str:
    """Give what makes two words the same: case and trailing punctuation do not count."""
    plain = word.casefold()
    return plain.rstrip(",.;:") or plain


def _unmatched(words: Sequence[str], blocks: Sequence[tuple[int, int]]) -> list[str]:
    kept = {start + i for start, size in blocks for i in range(size)}
    return [word.rstrip(",.;:") or word for i, word in enumerate(words) if i not in kept]
