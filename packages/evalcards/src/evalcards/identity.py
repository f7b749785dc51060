"""Who a model is: one canonical id per model, and ids that never change because another model was seen first.

An id is ``developer/name[-YYYYMMDD[-qualifier]]``. A name is looked up in the table of aliases, then among the
registered ids as it is, then with case and punctuation folded; anything else stays its own id and is listed as
unresolved. Only registered ids are matched against, so the outcome does not depend on the order of import.
"""

from __future__ import annotations

import difflib
import hashlib
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

_DATED = re.compile(r"^(.*?)-((?:19|20)\d{6})(?:-(.+))?$")
_NOT_SLUG = re.compile(r"[^a-z0-9]+")
_BETWEEN = re.compile(r"[\s._\-/:;,=@()\[\]]+")


class ModelName(NamedTuple):
    """A model id taken apart.

    Attributes
    ----------
    id : str
        As given.
    family : str
        Without date and qualifier.
    variant_date : str or None
        ``YYYYMMDD``.
    qualifier : str or None
        What follows the date.
    developer : str or None
        What stands before the first slash.
    """

    id: str
    family: str
    variant_date: str | None
    qualifier: str | None
    developer: str | None


def parse_model(model: str) -> ModelName:
    """Split an id into family, variant date and qualifier.

    Examples
    --------
    >>> parse_model("openai/gpt-4o-20240806-high")[1:4]
    ('openai/gpt-4o', '20240806', 'high')
    """
    match = _DATED.match(model)
    family, date, qualifier = match.groups() if match else (model, None, None)
    developer, slash, _ = model.partition("/")
    return ModelName(model, family, date, qualifier, developer if slash and developer else None)


def route_id(model: str) -> str:
    """Return the id with ``/`` replaced by ``__``, as it stands in links."""
    return model.replace("/", "__")


def fold(name: str) -> str:
    """Return the name's letters and digits in lower case: what is left when case and punctuation do not count."""
    return "".join(c for c in unicodedata.normalize("NFKC", name).casefold() if c.isalnum())


def slug(name: str) -> str:
    """Return a name of only ``[a-z0-9_-]`` for paths, files and links.

    Two names get the same one only if they differ in case, spaces or the punctuation ``. _ - / : ; , = @ ( ) [ ]``;
    where anything else is lost, a digest is added.

    Examples
    --------
    >>> slug("MMLU Pro"), slug("C") == slug("C++")
    ('mmlu-pro', False)
    """
    text = unicodedata.normalize("NFKC", name).strip().lower()
    plain = _NOT_SLUG.sub("-", text).strip("-")
    lost = _BETWEEN.sub("", text) != plain.replace("-", "")
    if lost or not plain or len(plain) > 80:
        digest = hashlib.sha256(_BETWEEN.sub("-", text).encode()).hexdigest()[:8]
        return f"{plain[:60]}-{digest}".lstrip("-")
    return plain


class ModelIndex:
    """The registered models and their aliases.

    Parameters
    ----------
    models
        Registered canonical ids.
    aliases
        Other spellings: alias to canonical id.
    """

    def __init__(self, models: Iterable[str] = (), aliases: Mapping[str, str] | None = None) -> None:
        self.aliases = dict(aliases or {})
        self.models = set(models) | set(self.aliases.values())
        self._folded: dict[str, set[str]] = defaultdict(set)
        for model in self.models:
            self._folded[fold(model)].add(model)

    def resolve(self, name: str) -> tuple[str, str]:
        """Return the canonical id and how it was found: ``alias``, ``exact``, ``folded`` or ``unresolved``."""
        if name in self.aliases:
            return self.aliases[name], "alias"
        if name in self.models:
            return name, "exact"
        near = self._folded.get(fold(name), set()) if fold(name) else set()
        if len(near) == 1:
            return next(iter(near)), "folded"
        return name, "unresolved"


def near_names(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """Return the known names most like ``name``, for the hint of an error."""
    by_fold: dict[str, str] = {}
    for candidate in known:
        by_fold.setdefault(fold(candidate), candidate)
        by_fold.setdefault(fold(candidate.rpartition("/")[2]), candidate)
    close = difflib.get_close_matches(fold(name), by_fold, n=3 * most, cutoff=0.5)
    return list(dict.fromkeys(by_fold[key] for key in close))[:most]
