"""The overview: every field of the reporting schema is named, with the share that the rollup counts."""

import matplotlib.pyplot as plt
import pytest

from evalcards.figures import draw_overview, wilson
from evalcards.signals import rollup


def test_the_overview_names_each_field_with_its_share(store):
    summed = rollup(store)
    fields = summed["overall"]["completeness"]["fields"]
    figure = draw_overview(summed)
    axis = figure.axes[1]
    names = [label.get_text() for label in axis.get_yticklabels()]
    widths = [bar.get_width() for bar in axis.patches]
    assert sorted(names) == sorted(path.rpartition(".")[2].replace("_", " ") for path in fields)
    assert widths == sorted(widths, reverse=True)
    shares = {path.rpartition(".")[2].replace("_", " "): 100 * entry["mean"] for path, entry in fields.items()}
    assert dict(zip(names, widths, strict=True)) == pytest.approx(shares)
    plt.close(figure)


def test_wilsons_interval_is_the_root_of_its_equation():
    # (p - x)^2 = z^2 x (1 - x) / n at both ends, which is how the interval is defined.
    z = 1.959963984540054
    for count, of in ((3, 40), (20, 40), (39, 40)):
        share = count / of
        for end in wilson(count, of):
            assert (share - end) ** 2 == pytest.approx(z * z * end * (1 - end) / of)
    assert wilson(0, 0) == (0.0, 1.0)
