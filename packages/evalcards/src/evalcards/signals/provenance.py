"""Signal 3: who measured, how closely they are tied to the model, and whether anybody else did."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

SOURCE_TYPES = ("first_party", "third_party", "collaborative", "unspecified")
"""The four buckets; ``other`` and null are unspecified."""

_SPACE = re.compile(r"\s+")


class RowProvenance(NamedTuple):
    """Who stands behind one row, and how many organisations behind its group.

    Attributes
    ----------
    source_type : str
        One of `SOURCE_TYPES`.
    is_multi_source : bool
        More than one named organisation reports this triple.
    first_party_only : bool
        This row is first-party and no second organisation is named.
    distinct_organisations : int
        Number of different named organisations in the group.
    """

    source_type: str
    is_multi_source: bool
    first_party_only: bool
    distinct_organisations: int


def get(row: Any, key: str) -> Any:
    """Return a row's value, whether the row is a mapping or an object."""
    return row.get(key) if isinstance(row, Mapping) else getattr(row, key, None)


def organisation(name: Any) -> str | None:
    """Return an organisation's name for comparing: white space collapsed, lower case; None if there is no name."""
    if not isinstance(name, str):
        return None
    return _SPACE.sub(" ", name).strip().lower() or None


def source_type(relationship: Any) -> str:
    """Return the bucket of ``evaluator_relationship``."""
    return relationship if relationship in SOURCE_TYPES else "unspecified"


def provenance(rows: Iterable[Any]) -> list[RowProvenance]:
    """Annotate the rows of one triple.

    Parameters
    ----------
    rows
        All rows of the triple; only ``source_metadata`` is read.

    Returns
    -------
    list of RowProvenance
        In the order of the rows. Parties are counted, never merged: two spellings of one organisation that differ in
        more than case and spaces are two.

    References
    ----------
    arXiv 2606.09809, signal "provenance".
    """
    sources = [get(row, "source_metadata") for row in rows]
    names = [organisation(get(source, "source_organization_name")) for source in sources]
    distinct = len({name for name in names if name is not None})
    kinds = [source_type(get(source, "evaluator_relationship")) for source in sources]
    return [RowProvenance(kind, distinct > 1, kind == "first_party" and distinct == 1, distinct) for kind in kinds]
