"""The manners: what goes to stdout and stderr, the exit status, and how an interrupted command is resumed."""

import io
import json
import logging
import os
import signal
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path
from typing import Annotated

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from papers_shared import InputError, _manners, _progress, cli
from papers_shared._provenance import package_version

app = cli.paper_app("papers_shared", help="A paper.")
part = cli.paper_app("papers_shared", help="A part.", claims=False)
app.add_typer(part, name="part")


@app.command()
def edit(
    photo: Annotated[Path, typer.Argument()] = Path("default.png"),
    strength: Annotated[float, typer.Option("--strength", min=0)] = 1.0,
    what: str = "work",
    resume: Annotated[bool, typer.Option("--resume")] = False,
    force: Annotated[bool, typer.Option("--force")] = False,
) -> None:
    """Edit a photo."""
    if what == "wrong":
        raise InputError(f"{photo}: no\npicture", hint="give a PNG")
    if what == "bug":
        raise RuntimeError("a bug")
    if what == "interrupt":
        raise KeyboardInterrupt
    if what == "log":
        for level in ("debug", "info", "warning", "error"):
            getattr(logging.getLogger("some.module"), level)("%s line", level)
    if what == "exit":
        raise typer.Exit(3)
    if what == "abort":
        raise typer.Abort
    for _ in cli.track(range(3), "editing"):
        pass
    cli.table([{"photo": str(photo), "strength": strength, "resume": resume, "quiet": cli.quiet()}])


@app.command("plain-name")
def other(quiet: bool = False) -> None:
    """Have an option of the general ones' name."""
    cli.emit_json({"quiet": quiet})


@part.command()
def inner() -> None:
    """Do the inner thing."""
    cli.emit_json({"quiet": cli.quiet()})


edit_script = cli.verb(app, "edit")
part_script = cli.verb(app, "part")


def run(script, *arguments):
    """Run a console script in this process as the shell would, with its own stdout and stderr."""
    result = CliRunner().invoke(_AsApp(script), [str(argument) for argument in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


class _AsApp(typer.Typer):
    """Let Typer's own test runner call a console script."""

    def __init__(self, script):
        super().__init__()
        self.script = script


@pytest.fixture(autouse=True)
def _runner_calls_scripts(monkeypatch):
    import typer.testing

    class Shim:
        def __init__(self, script):
            self.script, self.name = script, "shim"

        def main(self, args, prog_name, **_):
            return self.script(args=args)

    original = typer.main.get_command
    monkeypatch.setattr(
        typer.testing, "_get_command", lambda item: Shim(item.script) if isinstance(item, _AsApp) else original(item)
    )


def test_a_verb_runs_with_nothing_given():
    code, out, err = run(edit_script)
    assert code == 0
    assert out.split() == ["photo", "strength", "resume", "quiet", "─" * len(out.splitlines()[1]), *out.split()[5:]]
    assert out.splitlines()[2].split() == ["default.png", "1", "no", "no"]
    assert err == ""


def test_the_same_verb_is_a_subcommand_of_the_package():
    assert run(app, "edit", "a.png") == run(edit_script, "a.png")


@pytest.mark.parametrize("arguments", [["-q", "edit"], ["edit", "-q"], ["--quiet", "edit", "--quiet"]])
def test_quiet_may_stand_before_or_after_the_verb(arguments):
    assert "yes" in run(app, *arguments)[1]


def test_each_run_starts_from_the_defaults():
    assert "yes" in run(edit_script, "-q")[1]
    assert "yes" not in run(edit_script)[1]


@pytest.mark.parametrize("script", [app, edit_script, part_script])
def test_every_script_tells_the_version(script):
    code, out, _ = run(script, "--version")
    assert (code, out) == (0, f"papers_shared {package_version('papers_shared')}\n")


def test_help_lists_the_commands_claims_last():
    code, out, _ = run(app)
    assert code == 0
    assert [line.split()[0] for line in out.partition("Commands:")[2].splitlines() if line] == [
        *["edit", "plain-name", "part", "claims"]
    ]
    assert run(app, "--help")[1] == out


def test_help_of_a_verb_shows_its_own_and_the_general_options():
    out = run(edit_script, "--help")[1]
    assert out.lower().startswith("usage: edit [options] [photo]")
    for option in ("--strength", "-q, --quiet", "-v, --verbose", "--version"):
        assert option in out


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["a.png", "--what", "wrong"], "error: a.png: no picture; give a PNG\n"),
        (["--nope"], "error: No such option: --nope"),
        (["--strength", "x"], "error: Invalid value for '--strength'"),
        (["--strength", "-1"], "error: Invalid value for '--strength'"),
        (["a", "b"], "error: Got unexpected extra argument"),
        (["--what"], "error: Option '--what' requires an argument"),
    ],
)
def test_wrong_input_is_one_line_on_stderr_and_exit_2(arguments, line):
    code, out, err = run(edit_script, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(line)
    assert err.count("\n") == 1
    assert "wrong" in arguments or err.endswith("; see edit --help\n")


def test_an_unknown_command_is_wrong_input():
    code, _, err = run(app, "paint")
    assert code == 2
    assert err.startswith("error: No such command 'paint'")
    assert err.count("\n") == 1


def test_wrong_input_is_the_same_under_typer_s_test_runner():
    result = CliRunner().invoke(app, ["edit", "--what", "wrong"])
    assert result.exit_code == 2
    assert result.stderr == "error: default.png: no picture; give a PNG\n"


def test_a_bug_keeps_its_traceback():
    with pytest.raises(RuntimeError, match="a bug"):
        run(edit_script, "--what", "bug")


@pytest.mark.parametrize(("what", "code"), [("exit", 3), ("abort", 1)])
def test_exit_codes_of_commands_pass(what, code):
    assert run(edit_script, "--what", what)[0] == code


def test_an_interrupt_says_how_to_go_on():
    code, _, err = run(edit_script, "my photo.png", "--what", "interrupt", "--force")
    assert code == 130
    assert err.endswith("Continue with: edit 'my photo.png' --what interrupt --resume\n")


def test_an_interrupt_without_resume_says_so():
    app2 = cli.paper_app("papers_shared", claims=False)

    @app2.command()
    def short() -> None:
        raise KeyboardInterrupt

    code, _, err = run(cli.verb(app2, "short"))
    assert code == 130
    assert "Run the same command to start again" in err


def test_warnings_for_the_user_are_one_line_and_others_keep_their_place():
    before = warnings.formatwarning
    process = shell("--warn", stdout=subprocess.PIPE)
    _, err = process.communicate()
    assert err.startswith("warning: the mask was resized\n<string>:")
    assert "DeprecationWarning: old" in err
    assert warnings.formatwarning is before


@pytest.mark.parametrize(
    ("flags", "levels"),
    [
        (["-q"], ["error"]),
        ([], ["warning", "error"]),
        (["-v"], ["info", "warning", "error"]),
        (["-vv"], ["debug", "info", "warning", "error"]),
    ],
)
def test_verbosity_chooses_the_log_lines_on_stderr(flags, levels):
    _, out, err = run(edit_script, "--what", "log", *flags)
    assert err == "".join(f"{level}: {level} line\n" for level in levels)
    assert "line" not in out
    assert logging.getLogger().level == logging.WARNING


def test_a_command_keeps_its_own_option_of_a_general_name():
    assert json.loads(run(app, "plain-name", "--quiet")[1]) == {"quiet": True}


def test_a_group_can_be_a_verb():
    assert json.loads(run(part_script, "inner", "-q")[1]) == {"quiet": True}
    assert json.loads(run(part_script, "-q", "inner")[1]) == {"quiet": True}
    code, _, err = run(part_script, "outer")
    assert code == 2
    assert err.startswith("error: No such command 'outer'; see part --help")


def test_a_verb_that_does_not_exist_is_a_mistake_of_the_package():
    with pytest.raises(LookupError, match="no command 'paint'"):
        run(cli.verb(app, "paint"))


SCRIPT = """
import signal, sys, time, warnings
from papers_shared.cli import paper_app, table, verb
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that runs tests in the background ignores it
app = paper_app("papers_shared")
@app.command()
def go(name: str = "", lines: int = 1, wait: bool = False, warn: bool = False, resume: bool = False):
    if name:
        table([{"name": name}])
    if warn:
        warnings.warn("the mask was resized")
        warnings.warn("old", DeprecationWarning)
    for number in range(lines):
        print(number)
    if wait:
        print("ready", flush=True)
        time.sleep(60)
verb(app, "go")()
"""


def shell(*arguments, **options):
    return subprocess.Popen([sys.executable, "-c", SCRIPT, *arguments], text=True, stderr=subprocess.PIPE, **options)


@pytest.mark.parametrize("lines", ["1", "200000"])
def test_a_reader_that_goes_away_ends_the_command_without_noise(lines):
    read, write = os.pipe()
    os.close(read)
    process = shell("--lines", lines, stdout=write)
    os.close(write)
    _, err = process.communicate()
    assert err == ""
    assert process.returncode == 128 + signal.SIGPIPE


def test_ctrl_c_from_the_keyboard():
    process = shell("--wait", stdout=subprocess.PIPE)
    while process.stdout.readline() != "ready\n":
        pass
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130
    assert err.endswith("Continue with: go --wait --resume\n")
    assert "Traceback" not in err


def test_the_command_that_goes_on_keeps_what_is_no_option_last():
    context = typer.Context(typer.main.get_command(app).commands["edit"])
    again = _manners._how_to_resume(context, "edit", ["--force", "--", "--odd name.png"])
    assert again.endswith("Continue with: edit --resume -- '--odd name.png'")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("lines", ["1", "200000"])
def test_a_full_disk_under_stdout_is_one_line(lines):
    with Path("/dev/full").open("w") as full:
        process = shell("--lines", lines, stdout=full)
    _, err = process.communicate()
    assert err == "error: cannot write the output: no space left on device; free some space\n"
    assert process.returncode == 2


@pytest.mark.parametrize(
    ("name", "encoding", "shown"),
    [("größe", "ascii", "gr??e"), ("größe", "latin-1", "größe"), ("\udce9", "utf-8", "?")],
)
def test_what_the_terminal_cannot_show_is_no_reason_to_fail(name, encoding, shown):
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    command = [sys.executable, "-c", SCRIPT, "--name", name.encode(errors="surrogateescape")]
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    head, rule, row, *_ = (line.strip() for line in done.stdout.decode(encoding).splitlines())
    assert (head, row) == ("name", shown)
    assert set(rule) == {"─" if encoding == "utf-8" else "-"}


def test_another_broken_pipe_is_a_bug():
    app2 = cli.paper_app("papers_shared", claims=False)

    @app2.command()
    def speak() -> None:
        raise BrokenPipeError("a socket of ours")

    with pytest.raises(BrokenPipeError):
        run(cli.verb(app2, "speak"))


@pytest.mark.parametrize(
    ("text", "seeds"), [("3", (0, 1, 2)), ("0,5", (0, 5)), ("7,", (7,)), ("1..4", (1, 2, 3, 4)), ("2,2", (2,))]
)
def test_seeds(text, seeds):
    assert cli.parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "0", "x", "-1", "1,-2", "4..1", "1..2..3", "1.5", "-2..3"])
def test_what_are_not_seeds(text):
    with pytest.raises(InputError, match="not seeds"):
        cli.parse_seeds(text)


@pytest.mark.parametrize("text", ["20261206", "0..99999", "1" + "0" * 40])
def test_a_seed_given_as_a_number_of_seeds_is_noticed(text):
    with pytest.raises(InputError, match="a number is a count"):
        cli.parse_seeds(text)


def test_a_table_rounds_aligns_and_is_never_cut(capsys):
    cli.table(
        [
            {"name": "[red]long[/red] " + "x" * 200, "value": 0.123456, "n": 12345678},
            {"name": "b", "value": None, "n": np.int64(5)},
            {"name": True, "value": np.float32(1234.5678), "n": 1},
        ],
        title="Results",
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Results"
    assert "[red]long[/red] " + "x" * 200 in lines[3]
    assert [line.split()[-2:] for line in lines[3:]] == [["0.1235", "12345678"], ["-", "5"], ["1235", "1"]]
    assert len({len(line) for line in lines[1:]}) == 1  # numbers end in one column


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.00012346, "0.0001235"),
        (1.2e-7, "1.2e-07"),
        (123456.7, "123500"),
        (float("nan"), "nan"),
        (2.0, "2"),
    ],
)
def test_numbers_have_four_significant_digits(value, text):
    from papers_shared._table import number

    assert number(value) == text


def test_json_on_stdout_is_strict(capsys):
    cli.emit_json({"a": float("nan"), "b": np.arange(2)})
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail) == {"a": None, "b": [0, 1]}


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(_progress.time, "monotonic", clock)
    return clock


def test_progress_in_a_log_file_is_sparse_and_estimates_what_is_left(capsys, clock):
    for _ in cli.track(range(1000), "training"):
        clock.now += 1.0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "training: 3/1000 (0%), about 16 min 37 s left, 3 s so far"
    assert lines[-1] == "training: 1000/1000 (100%), 16 min 40 s so far"
    assert 15 < len(lines) < 30


def test_short_work_shows_nothing_in_a_log_file(capsys, clock):
    assert list(cli.track(iter("abc"), "quick")) == ["a", "b", "c"]
    clock.now += 2.0
    assert capsys.readouterr().err == ""


def test_steps_of_an_earlier_run_took_no_time_in_this_one(capsys, clock):
    with cli.progress("training", total=1000) as bar:
        bar.update(900)
        clock.now += 1
        bar.advance(1)
        clock.now += 3
        bar.advance(1)
    assert capsys.readouterr().err.splitlines()[0] == "training: 902/1000 (90%), about 3 min 16 s left, 4 s so far"


def test_progress_without_a_total_counts(capsys, clock):
    with cli.progress("reading") as bar:
        clock.now += 5.0
        bar.advance(10, note="loss 0.5")
    assert capsys.readouterr().err == "reading: 10, 5 s so far, loss 0.5\n"


def test_quiet_progress_is_silent(capsys, clock):
    with _progress.progress("reading", 10, quiet=True) as bar:
        clock.now += 100.0
        bar.advance(10)
    assert capsys.readouterr().err == ""


def test_bars_on_a_terminal_nest_and_vanish(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    for _ in cli.track(range(2), "outer"):
        with cli.progress("inner", total=2) as bar:
            bar.advance(note="loss [0.5]")
            _progress._DISPLAY.rich.refresh()
    assert "outer" in terminal.getvalue()
    assert "loss [0.5]" in terminal.getvalue()
    assert _progress._DISPLAY.rich is None


def test_an_exception_inside_a_bar_closes_it(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    with pytest.raises(ZeroDivisionError), cli.progress("x", 3):
        raise ZeroDivisionError
    assert _progress._DISPLAY.users == 0


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.6, "1 min 0 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")]
)
def test_durations(seconds, text):
    assert _progress.duration(seconds) == text


def test_help_is_quick():
    """The best of three, so that a busy machine does not matter; importing numpy or rich would double it."""
    code = textwrap.dedent("""
        import sys
        sys.argv = ["edit", "--help"]
        from papers_shared.cli import paper_app, verb
        app = paper_app("papers_shared")
        app.command("edit")(lambda: None)
        try:
            verb(app, "edit")()
        finally:
            print(sorted({"numpy", "rich", "PIL", "matplotlib"} & set(sys.modules)), file=sys.stderr)
    """)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


def test_names_that_would_act_on_a_terminal_are_written_out(capsys):
    name = "a\x1b[2Jb\u202ec"
    cli.table([{name: name}], title=name)
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert out.count(r"a\x1b[2Jb\u202ec") == 3
    assert cli.visible("plain, 模型 é") == "plain, 模型 é"
