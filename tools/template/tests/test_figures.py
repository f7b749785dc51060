"""The picture shows the numbers that it says it shows."""

import numpy as np
import pytest

from papername.figures import draw_settling
from papername.variance import empty, update


def test_the_line_is_the_variance_of_what_was_read_so_far():
    values = np.random.default_rng(0).normal(5.0, 2.0, 40)
    path = [empty()]
    for chunk in np.split(values, 40):  # the first single value has no variance and no point
        path.append(update(path[-1], chunk))
    (axes,) = draw_settling(path).axes
    (line,) = axes.get_lines()
    count, variance = line.get_data()
    assert count.tolist() == list(range(2, 41))
    assert variance == pytest.approx([np.var(values[:n], ddof=1) for n in range(2, 41)])
