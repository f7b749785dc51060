"""The generated parts of the READMEs say what the results say, in good English, and nothing else changes."""

import json

import pytest

from new_paper import write_skeleton
from papers import papers
from readme import rendered, replace, score, stale


def results(folder, *holds):
    claims = [
        {"id": f"C{n}", "statement": "s", "paper": "p", "measured": {"x": n}, "must_hold": h is not None, "holds": h}
        for n, h in enumerate(holds)
    ]
    (folder / "results" / "small").mkdir(parents=True, exist_ok=True)
    (folder / "results" / "small" / "claims.json").write_text(json.dumps({"claims": claims}))


@pytest.mark.parametrize(
    ("holds", "says"),
    [
        ([True, True, False], "2 hold, 1 does not"),
        ([True, False, False], "1 holds, 2 do not"),
        ([True], "1 holds, 0 do not"),
        ([False, None, None], "0 hold, 1 does not, 2 reported"),
    ],
)
def test_the_count_of_claims_reads_well(tmp_path, holds, says):
    results(write_skeleton("alpha", "doalpha", tmp_path), *holds)
    (paper,) = papers(tmp_path)
    assert score(paper) == says


def test_a_paper_without_results_says_so(tmp_path):
    write_skeleton("alpha", "doalpha", tmp_path)
    assert score(papers(tmp_path)[0]) == "not run yet"


def test_only_what_stands_between_the_markers_changes():
    text = "before\n<!-- papers:begin -->\nold\n<!-- papers:end -->\nafter\n"
    assert replace(text, "papers", "new\n") == text.replace("old", "new")
    assert replace(text, "papers", r"back\1slash") == text.replace("old", r"back\1slash")
    assert replace(text, "claims", "new") == text


def test_a_readme_is_stale_until_it_says_what_the_results_say(tmp_path):
    (tmp_path / "README.md").write_text("# Top\n<!-- papers:begin -->\n<!-- papers:end -->\n")
    folder = write_skeleton("alpha", "doalpha", tmp_path)
    results(folder, True)
    assert stale(tmp_path) == [tmp_path / "README.md", folder / "README.md"]
    for path, text in list(rendered(tmp_path)):
        path.write_text(text)
    assert stale(tmp_path) == []
    assert "| `uv run --package alpha doalpha` | 1 holds, 0 do not |" in (tmp_path / "README.md").read_text()
    assert "| C0 | s | p | x 0 | held |" in (folder / "README.md").read_text()
    results(folder, False)
    assert stale(tmp_path) == [tmp_path / "README.md", folder / "README.md"]
