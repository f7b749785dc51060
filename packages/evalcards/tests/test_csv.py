"""Leaderboards as CSV: cells that are not where the header says, and other ways to part them."""

import pytest

from evalcards.errors import InputError
from evalcards.importers import csv
from evalcards.importers.csv_table import read_mapping

MAPPING = {"model": "model", "benchmark": {"value": "MMLU"}, "metric": {"value": "acc"}, "score": "score"}


def read(tmp_path, text, **more):
    path = tmp_path / "board.csv"
    path.write_text(text)
    return csv(path, MAPPING | more)


def test_a_line_with_more_or_fewer_cells_than_columns_is_a_failure(tmp_path):
    found = read(tmp_path, "model,score\na,0.5\nb\nc,0.7,0.8\nd,0.9,,\n")
    assert [(log.model_info.id, log.evaluation_results[0].score_details.score) for log in found.logs] == [
        ("a", 0.5), ("d", 0.9)
    ]  # fmt: skip
    assert [(f.where, f.reason, f.rows) for f in found.failures] == [
        ("line 3", "1 of 2 cells", 1),
        ("line 4", "3 of 2 cells", 1),
    ]
    assert found.found == found.rows + found.failed == 4


def test_a_column_that_is_there_twice_is_refused_only_if_it_is_asked_for(tmp_path):
    with pytest.raises(InputError, match="2 columns 'score', which the mapping names for score"):
        read(tmp_path, "model,score,score\na,0.5,0.6\n")
    assert read(tmp_path, "model,score,note,note\na,0.5,x,y\n").rows == 1


@pytest.mark.parametrize("mark", [";", "\t", "|"])
def test_cells_may_be_parted_by_another_mark(tmp_path, mark):
    text = f"model{mark}score\na{mark}0.5\n"
    with pytest.raises(InputError, match="the mapping's delimiter may be"):
        read(tmp_path, text)
    assert read(tmp_path, text, delimiter=mark).rows == 1


@pytest.mark.parametrize("mark", ["", ";;", '"', "\n", 3])
def test_a_delimiter_is_one_character(mark):
    with pytest.raises(InputError, match="want one character"):
        read_mapping(MAPPING | {"delimiter": mark})
