"""Why pairs are hard: deterministic tags, and where a matcher's errors gather."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pandas as pd
from followthemoney import EntityProxy, model
from followthemoney.types import registry
from jaxtyping import Bool, Num
from nomenklatura.matching.compat import fingerprint_name

from sanctionspairs.records import Pair, caption, decided_by_form
from sanctionspairs.text import bare_identifier, dominant_script, numbers, org_forms

LEAST_ERRORS = 5
"""With fewer errors in a tag its lift is undetermined."""


def _cross_script(left: EntityProxy, right: EntityProxy) -> bool:
    a, b = dominant_script(caption(left)), dominant_script(caption(right))
    return a is not None and b is not None and a != b


def _non_latin(left: EntityProxy, right: EntityProxy) -> bool:
    return any(dominant_script(caption(entity)) not in (None, "Latin") for entity in (left, right))


def dates_agree(left: Iterable[str], right: Iterable[str]) -> bool | None:
    """Tell whether some date of one side could be some date of the other, at the coarser precision; None if unknown."""
    pairs = [(a, b) for a in left for b in right if len(a) >= 4 and len(b) >= 4]
    return any(a[: min(len(a), len(b), 10)] == b[: min(len(a), len(b), 10)] for a, b in pairs) if pairs else None


def _birth(entity: EntityProxy) -> list[str]:
    return entity.get("birthDate", quiet=True)


def _dob_conflict(left: EntityProxy, right: EntityProxy) -> bool:
    return dates_agree(_birth(left), _birth(right)) is False


def _dob_precision(left: EntityProxy, right: EntityProxy) -> bool:
    a, b = _birth(left), _birth(right)
    return bool(dates_agree(a, b)) and not {date[:10] for date in a} & {date[:10] for date in b}


def _identifiers(entity: EntityProxy) -> dict[str, set[str]]:
    found = {}
    for prop in entity.iterprops():
        if prop.type == registry.identifier and prop.matchable:
            found[prop.name] = set(entity.get(prop))
    return found


def _id_conflict(left: EntityProxy, right: EntityProxy) -> bool:
    a, b = _identifiers(left), _identifiers(right)
    shared = a.keys() & b.keys()
    bare = [({bare_identifier(v) for v in a[name]}, {bare_identifier(v) for v in b[name]}) for name in shared]
    return bool(bare) and all(first.isdisjoint(second) for first, second in bare)


def _id_format(left: EntityProxy, right: EntityProxy) -> bool:
    a = set().union(*_identifiers(left).values())
    b = set().union(*_identifiers(right).values())
    return a.isdisjoint(b) and not {bare_identifier(v) for v in a}.isdisjoint(bare_identifier(v) for v in b)


def _names(entity: EntityProxy, *props: str) -> set[str]:
    prints = (fingerprint_name(name) for prop in props for name in entity.get(prop, quiet=True))
    return {text for text in prints if text}


def _number_in_name(left: EntityProxy, right: EntityProxy) -> bool:
    return any(numbers(name) for entity in (left, right) for name in entity.get("name", quiet=True))


def _country_conflict(left: EntityProxy, right: EntityProxy) -> bool:
    a, b = (set(e.get_type_values(registry.country, matchable=True)) for e in (left, right))
    return bool(a) and bool(b) and a.isdisjoint(b)


def _gender_conflict(left: EntityProxy, right: EntityProxy) -> bool:
    a, b = set(left.get("gender", quiet=True)), set(right.get("gender", quiet=True))
    return bool(a) and bool(b) and a.isdisjoint(b)


def _homonym(left: EntityProxy, right: EntityProxy) -> bool:
    same = not _names(left, "name").isdisjoint(_names(right, "name"))
    conflicts = (_dob_conflict, _id_conflict, _country_conflict, _gender_conflict)
    return same and any(conflict(left, right) for conflict in conflicts)


def _alias_only(left: EntityProxy, right: EntityProxy) -> bool:
    every = ("name", "alias", "weakAlias", "previousName")
    named = _names(left, "name").isdisjoint(_names(right, "name"))
    return named and not _names(left, *every).isdisjoint(_names(right, *every))


def _sparse(left: EntityProxy, right: EntityProxy) -> bool:
    return len(left.properties.keys() & right.properties.keys()) <= 2


def _schema_differs(left: EntityProxy, right: EntityProxy) -> bool:
    return left.schema is not right.schema


def _org_form(left: EntityProxy, right: EntityProxy) -> bool:
    legal = model["LegalEntity"]
    if not (left.schema.is_a(legal) and right.schema.is_a(legal)):
        return False
    a, b = (frozenset().union(*(org_forms(n) for n in e.get("name", quiet=True))) for e in (left, right))
    return bool(a or b) and a != b


TAGS: dict[str, Callable[[EntityProxy, EntityProxy], bool]] = {
    "cross_script": _cross_script,
    "non_latin": _non_latin,
    "dob_conflict": _dob_conflict,
    "dob_precision": _dob_precision,
    "id_conflict": _id_conflict,
    "id_format": _id_format,
    "number_in_name": _number_in_name,
    "homonym": _homonym,
    "alias_only": _alias_only,
    "sparse": _sparse,
    "schema_differs": _schema_differs,
    "org_form": _org_form,
    "country_conflict": _country_conflict,
}
"""Each tag's test of two records."""
TAG_MEANING = {
    "cross_script": "the captions are mostly in different scripts",
    "non_latin": "a caption is mostly not in Latin script",
    "dob_conflict": "no birth date of one side fits one of the other",
    "dob_precision": "birth dates fit, but not in full: one is partial",
    "id_conflict": "both give the same kind of identifier, with different values",
    "id_format": "an identifier is the same but for punctuation or case",
    "number_in_name": "a name holds a number",
    "homonym": "the names are equal and birth date, identifier, country or gender conflict",
    "alias_only": "only an alias or former name links them",
    "sparse": "at most two properties are filled on both sides",
    "schema_differs": "the records have different schemata",
    "org_form": "the legal forms in the names differ",
    "country_conflict": "the countries have nothing in common",
    "incompatible": "the schemata exclude each other",
    "self_pair": "both sides are the same record",
}
"""What each tag says, for reports."""


def tags(pair: Pair) -> tuple[str, ...]:
    """Return the tags of a pair, in a fixed order."""
    form = decided_by_form(pair)
    if form is not None:
        return (form,)
    return tuple(name for name, test in TAGS.items() if test(pair.left, pair.right))


def tag_errors(
    pairs: Sequence[Pair],
    pred: Num[np.ndarray, " n"] | Bool[np.ndarray, " n"],
    tagged: Sequence[Sequence[str]] | None = None,
) -> pd.DataFrame:
    r"""Count a matcher's errors by tag.

    .. math:: \text{FP lift} = \frac{FP_\text{tag} / N_\text{tag}}{FP / N}, \qquad
              \text{FN lift} = \frac{FN_\text{tag} / P_\text{tag}}{FN / P}

    Parameters
    ----------
    pairs
        Scored pairs.
    pred
        ``(n,)`` decisions.
    tagged
        The tags of each pair, if known already.

    Returns
    -------
    DataFrame
        Indexed by tag: ``pairs``, ``positives``, ``negatives``, ``fp``, ``fn``, ``fp_lift``, ``fn_lift``; a lift is NaN
        (undetermined) with fewer than five errors of its kind in the tag.
    """
    known = [tags(pair) for pair in pairs] if tagged is None else tagged
    truth = np.array([pair.label for pair in pairs], dtype=bool)
    yes = np.asarray(pred, bool)
    fp, fn = yes & ~truth, ~yes & truth
    base_fp = fp.sum() / max(1, (~truth).sum())
    base_fn = fn.sum() / max(1, truth.sum())
    rows = []
    for name in [*TAGS, "incompatible"]:
        here = np.array([name in found for found in known], dtype=bool)
        negatives, positives = int((here & ~truth).sum()), int((here & truth).sum())
        count_fp, count_fn = int((here & fp).sum()), int((here & fn).sum())
        rows.append(
            {
                "tag": name,
                "pairs": int(here.sum()),
                "positives": positives,
                "negatives": negatives,
                "fp": count_fp,
                "fn": count_fn,
                "fp_lift": count_fp / negatives / base_fp if count_fp >= LEAST_ERRORS else np.nan,
                "fn_lift": count_fn / positives / base_fn if count_fn >= LEAST_ERRORS else np.nan,
            }
        )
    return pd.DataFrame(rows).set_index("tag")
