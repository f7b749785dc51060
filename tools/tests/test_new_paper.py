"""new-paper refuses names that cannot work and writes a skeleton that carries the new names everywhere."""

import pytest

from new_paper import NAME, VERB, write_skeleton


@pytest.mark.parametrize(
    ("name", "verb", "why"),
    [
        ("Alpha", "run", "lower-case"),
        ("my-paper", "run", "lower-case"),
        ("class", "run", "valid Python name"),
        ("alpha", "do it", "lower-case"),
        ("alpha", "alpha", "must differ"),
        ("taken", "run", "exists already"),
        ("alpha", "dotaken", "already installs"),
        ("json", "run", "module of Python"),
        ("numpy", "run", "package in uv.lock"),
    ],
)
def test_names_that_cannot_work_are_refused(tmp_path, name, verb, why):
    write_skeleton("taken", "dotaken", tmp_path)
    (tmp_path / "uv.lock").write_text('[[package]]\nname = "numpy"\n')
    with pytest.raises(ValueError, match=why):
        write_skeleton(name, verb, tmp_path)


def test_the_skeleton_carries_the_new_names(tmp_path):
    folder = write_skeleton("alpha", "doalpha", tmp_path)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert (folder / "src" / "alpha" / "cli.py") in files
    for path in files:
        assert NAME not in path.read_text()
        assert VERB not in path.read_text()
        assert NAME not in path.name
