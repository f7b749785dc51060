"""How every command ends: one line for wrong input, a traceback for a bug, how to resume after Ctrl-C."""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import os
import select
import shlex
import signal
import sys
import warnings
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from papers_shared._atomic import DISK_FULL
from papers_shared._visible import visible
from papers_shared.errors import InputError


class _Interrupted(BaseException):
    """Ctrl-C inside a command, with the command's context, on its way past Typer's own handler."""

    def __init__(self, context: Any) -> None:
        self.context = context


class _PipeClosed(BaseException):
    """The reader of our stdout has gone, as ``| head`` does."""


class PaperCommand(TyperCommand):
    """A command with the manners."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command's function."""
        return _guarded(super().invoke, ctx)

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, *rest: Any, **settings: Any) -> Any:
        """Run as a console script."""
        return _as_script(super().main, args, prog_name, *rest, **settings)


class PaperGroup(TyperGroup):
    """A group of commands with the manners, which lists ``claims`` last."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Name the commands in the order of ``--help``."""
        names = super().list_commands(ctx)
        return [name for name in names if name != "claims"] + [name for name in names if name == "claims"]

    def invoke(self, ctx: Any) -> Any:
        """Run the group's function and the subcommand."""
        return _guarded(super().invoke, ctx)

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, *rest: Any, **settings: Any) -> Any:
        """Run as a console script."""
        return _as_script(super().main, args, prog_name, *rest, **settings)


def _guarded(invoke: Callable[[Any], Any], context: Any) -> Any:
    try:
        return invoke(context)
    except KeyboardInterrupt as error:
        raise _Interrupted(context) from error
    except BrokenPipeError:
        if _stdout_is_closed():
            raise _PipeClosed from None
        raise


def _as_script(
    main: Callable[..., Any], args: Sequence[str] | None, prog_name: str | None, *rest: Any, **settings: Any
) -> Any:
    if not settings.pop("standalone_mode", True):
        return main(args, prog_name, *rest, standalone_mode=False, **settings)
    arguments = list(sys.argv[1:] if args is None else args)
    program = prog_name or Path(sys.argv[0]).name
    with _fresh_state():
        run = functools.partial(main, arguments, program, *rest, standalone_mode=False, **settings)
        code = _exit_code(run, program, arguments)
    sys.exit(code)


def _exit_code(run: Callable[[], Any], program: str, arguments: list[str]) -> int:
    try:
        result = run()
        sys.stdout.flush()
    except InputError as error:
        _say(f"error: {error}")
        return 2
    except _Interrupted as error:
        _say(_how_to_resume(error.context, program, arguments))
        return 130
    except typer.Abort:
        _say("aborted")
        return 1
    except (_PipeClosed, BrokenPipeError) as error:
        if isinstance(error, BrokenPipeError) and not _stdout_is_closed():
            raise
        _drop_stdout()
        return 128 + signal.SIGPIPE if hasattr(signal, "SIGPIPE") else 1
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        _drop_stdout()  # it may be what the disk has no room for
        where = error.filename if error.filename is not None else "the output"
        _say(f"error: cannot write {where}: {(error.strerror or str(error)).lower()}; free some space")
        return 2
    except Exception as caught:
        error: Any = caught
        # Typer carries its own copy of click's exceptions or click itself, by version: told by what they offer.
        if not (hasattr(error, "format_message") and hasattr(error, "exit_code")):
            raise
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else program
        message = error.format_message().rstrip(".")
        _say(f"error: {message}; see {command} --help")
        return error.exit_code
    return result if isinstance(result, int) and not isinstance(result, bool) else 0


def _say(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(visible(" ".join(text.split())) + "\n")
        sys.stderr.flush()


def _how_to_resume(context: Any, program: str, arguments: list[str]) -> str:
    options = {name for parameter in context.command.params for name in getattr(parameter, "opts", ())}
    if "--resume" not in options:
        return "interrupted; files already written are whole. Run the same command to start again"
    kept = [argument for argument in arguments if argument not in ("--force", "--resume")]
    end = kept.index("--") if "--" in kept else len(kept)  # what comes after it is no option
    again = shlex.join([program, *kept[:end], "--resume", *kept[end:]])
    return f"interrupted; files already written are whole. Continue with: {again}"


def _stdout_is_closed() -> bool:
    """Tell whether the reader of stdout has gone; some other pipe of the program may have broken instead."""
    if not hasattr(select, "poll"):
        return True
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):
        return False
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _drop_stdout() -> None:
    """Send what is left in the buffers nowhere, so that the interpreter's last flush does not complain."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


class Settings:
    """What ``-q`` and ``-v`` have set for the command that runs now."""

    quiet = False
    verbose = 0


@contextlib.contextmanager
def _fresh_state() -> Generator[None, None, None]:
    """Start each run of a command from the defaults; several may run in one process, as tests do."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal of another encoding, or a name that is not text
    Settings.quiet, Settings.verbose = False, 0
    package_log = logging.getLogger()
    level, handlers = package_log.level, list(package_log.handlers)
    formatting = warnings.formatwarning

    def one_line(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
    ) -> str:
        if issubclass(category, UserWarning):
            return f"warning: {message}\n"
        return formatting(message, category, filename, lineno, line)

    warnings.formatwarning = one_line  # ty: ignore[invalid-assignment]
    _set_logging()
    try:
        yield
    finally:
        warnings.formatwarning = formatting
        package_log.setLevel(level)
        package_log.handlers[:] = handlers


class _StderrHandler(logging.StreamHandler):
    """Write to whatever stderr is now, not what it was when logging was set up."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def _set_logging() -> None:
    root = logging.getLogger()
    if not any(isinstance(handler, _StderrHandler) for handler in root.handlers):
        handler = _StderrHandler()
        handler.setFormatter(_LowerCase("%(levelname)s: %(message)s"))
        root.addHandler(handler)
    levels = {0: logging.WARNING, 1: logging.INFO}
    root.setLevel(logging.ERROR if Settings.quiet else levels.get(Settings.verbose, logging.DEBUG))


class _LowerCase(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:
        record.levelname = record.levelname.lower()
        return super().formatMessage(record)


def on_quiet(value: bool) -> None:
    """Note ``-q``; given before or after the verb."""
    if value:
        Settings.quiet = True
        _set_logging()


def on_verbose(value: int) -> None:
    """Note ``-v`` or ``-vv``; the larger of the places where it may stand counts."""
    if value > Settings.verbose:
        Settings.verbose = value
        _set_logging()
