"""Pictures of a store: the four signals on one page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from papers_shared.artifacts import PALETTE, figure_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SOURCE_COLOURS = {
    "first_party": PALETTE[1],
    "third_party": PALETTE[0],
    "collaborative": PALETTE[2],
    "unspecified": "#9aa4af",
}


def wilson(count: int, of: int, z: float = 1.959963984540054) -> tuple[float, float]:
    """Return Wilson's 95% interval of a proportion.

    References
    ----------
    Wilson, "Probable inference, the law of succession, and statistical inference", 1927.
    """
    if of == 0:
        return 0.0, 1.0
    share = count / of
    middle = (share + z * z / (2 * of)) / (1 + z * z / of)
    half = z / (1 + z * z / of) * ((share * (1 - share) / of + z * z / (4 * of * of)) ** 0.5)
    return max(0.0, middle - half), min(1.0, middle + half)


def _bars(axis: Any, names: list[str], rates: list[dict[str, Any]], colour: Any) -> None:
    """Draw rates as horizontal bars with their Wilson intervals."""
    values = [100 * (rate["rate"] or 0) for rate in rates]
    ends = [wilson(rate["count"], rate["of"]) for rate in rates]
    errors = [
        [max(0.0, value - 100 * low) for value, (low, _) in zip(values, ends, strict=True)],
        [max(0.0, 100 * high - value) for value, (_, high) in zip(values, ends, strict=True)],
    ]
    axis.barh(names, values, color=colour, xerr=errors, error_kw={"ecolor": "#444444", "elinewidth": 1})
    axis.set_xlim(0, 100)
    axis.invert_yaxis()
    axis.grid(axis="y", visible=False)
    for position, (rate, (_, high)) in enumerate(zip(rates, ends, strict=True)):
        inside = high > 0.75
        axis.text(
            2 if inside else 100 * high + 2,
            position,
            f"{rate['count']:,}/{rate['of']:,}",
            va="center",
            fontsize=8,
            color="white" if inside else "#333333",
        )


def _fields(axis: Any, completeness: dict[str, Any]) -> None:
    """Draw how many benchmarks report each field; a field that none reports keeps its name and no bar."""
    shares = sorted(((100 * entry["mean"], path) for path, entry in completeness["fields"].items()), reverse=True)
    names = [path.rpartition(".")[2].replace("_", " ") for _, path in shares]
    axis.barh(range(len(shares)), [share for share, _ in shares], color=PALETTE[4])
    axis.axvline(
        100 * (completeness["mean"] or 0), color="#333333", linewidth=1, linestyle="--", label="mean of fields"
    )
    axis.set(title="2 Completeness", xlabel="% of benchmarks that report the field", xlim=(0, 100))
    axis.set_yticks(range(len(names)), names, fontsize=6 if len(names) > 20 else 8)
    axis.tick_params(axis="y", length=0)
    axis.invert_yaxis()
    axis.grid(axis="y", visible=False)
    axis.legend(loc="lower right")


def draw_overview(summed: dict[str, Any]) -> Figure:
    """Draw the four signals of a corpus.

    Parameters
    ----------
    summed
        What `evalcards.signals.rollup` returns.
    """
    import matplotlib.pyplot as plt

    overall = summed["overall"]
    with figure_style(figure_figsize=(9.6, 7.4)):
        fig, axes = plt.subplots(2, 2, height_ratios=(1.5, 1))
        reproducible = overall["reproducibility"]
        names = ["fully documented", *(f"{field} missing" for field in reproducible["missing"])]
        rates = [reproducible["fully_documented"], *reproducible["missing"].values()]
        _bars(axes[0, 0], names, rates, [PALETTE[2], *[PALETTE[1]] * (len(rates) - 1)])
        axes[0, 0].set(title="1 Reproducibility", xlabel="% of results (agentic fields: of agentic results)")
        _fields(axes[0, 1], overall["completeness"])
        kinds = overall["provenance"]["source_types"]
        _bars(axes[1, 0], [kind.replace("_", " ") for kind in kinds] + ["several parties"],
              [*kinds.values(), overall["provenance"]["multi_source"]],
              [*(SOURCE_COLOURS[kind] for kind in kinds), PALETTE[3]])  # fmt: skip
        axes[1, 0].set(title="3 Provenance", xlabel="% of results (several parties: of triples)")
        compared = overall["comparability"]
        _bars(
            axes[1, 1],
            ["by settings", "by party"],
            [compared["variant_divergence"], compared["cross_party_divergence"]],
            [PALETTE[1], PALETTE[0]],
        )
        axes[1, 1].set(title="4 Comparability", xlabel="% of eligible triples further apart than the threshold")
    return fig
