"""The command line: the answer on stdout, the user's mistakes in one line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from evalcards.cli import evalcard_script


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        evalcard_script([*map(str, arguments)])
    return stop.value.code, *capsys.readouterr()


def test_the_embedded_default_needs_nothing(capsys):
    code, out, _ = run(capsys, "--json")
    assert code == 0
    assert json.loads(out)["variance"] == pytest.approx(1, abs=0.1)


def test_a_file_is_read_and_chunks_do_not_matter(capsys, tmp_path):
    path = tmp_path / "readings.txt"
    path.write_text("1\n2  # a comment\n\n6\n")
    for chunk in (1, 2, 3):
        code, out, _ = run(capsys, path, "--chunk", chunk, "--json")
        assert code == 0
        assert json.loads(out) == {"count": 3, "mean": pytest.approx(3), "variance": pytest.approx(7)}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "cannot read"),
        ("", "holds no number"),
        ("1\nx\n", "line 2: 'x'"),
        ("1\nnan\n", "line 2: 'nan'"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(capsys, tmp_path, text, says):
    path = tmp_path / "readings.txt"
    if text is not None:
        path.write_text(text)
    code, out, err = run(capsys, path)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert says in err
    assert err.count("\n") == 1


def test_the_readme_snippet_runs():
    readme = (Path(__file__).parent.parent / "README.md").read_text()
    snippet = readme.split("```python\n")[1].split("```")[0]
    done = subprocess.run([sys.executable, "-c", snippet], capture_output=True, text=True, check=True)
    assert done.stdout == "30000 1.0\n"
