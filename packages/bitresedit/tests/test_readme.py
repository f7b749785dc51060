"""The README's Python runs as printed, its commands parse, and its pictures are there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

from bitresedit.backbones.scene_var import SceneVAR
from bitresedit.cli import app

README = Path(__file__).parents[1] / "README.md"


def test_the_python_snippet_runs_as_printed(monkeypatch, tmp_path, capsys, scene_model):
    # The small random model stands in for the bundled one only to save time; the snippet is the README's.
    monkeypatch.setattr(SceneVAR, "load_default", classmethod(lambda cls: scene_model))
    monkeypatch.chdir(tmp_path)
    [snippet] = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    exec(compile(snippet, str(README), "exec"), {})
    assert (tmp_path / "edited.png").exists()
    assert "background" in capsys.readouterr().out


def commands() -> list[str]:
    blocks = re.findall(r"```console\n(.*?)```", README.read_text(), re.DOTALL)
    text = "\n".join(blocks).replace("\\\n", " ")
    return [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]


@pytest.mark.parametrize("line", [c for c in commands() if not c.startswith("pip")])
def test_every_command_parses(line):
    words = shlex.split(line, comments=True)
    words = words[4:] if words[:2] == ["uv", "run"] else words
    arguments = words if words[0] == "edit" else words[1:]
    group = typer.main.get_command(app)
    command = group.commands[arguments[0]]
    with command.make_context(arguments[0], list(arguments[1:])) as context:
        assert context.params is not None


def test_every_picture_is_there():
    for picture in re.findall(r"!\[[^]]*\]\(([^)]+)\)", README.read_text()):
        assert (README.parent / picture).exists(), picture
