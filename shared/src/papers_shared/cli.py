"""The command line's manners, the same for every paper.

stdout carries the answer, stderr progress and messages. Exit 0: done; 2: the input is wrong, said in one line
``error: what, where; hint``; 1: a bug, with its traceback; 130: interrupted, with how to resume.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from papers_shared import _progress
from papers_shared._manners import PaperCommand, PaperGroup, Settings, on_quiet, on_verbose
from papers_shared._visible import visible
from papers_shared.errors import InputError

__all__ = ["emit_json", "paper_app", "parse_seeds", "progress", "quiet", "table", "track", "verb", "visible"]


_QUIET = typer.Option("--quiet", "-q", callback=on_quiet, metavar="", help="No progress or notes on stderr.")
_VERBOSE = typer.Option(
    "--verbose", "-v", count=True, callback=on_verbose, help="Say more on stderr; -vv for debugging.",
    show_default=False, metavar="",
)  # fmt: skip
_MOST_SEEDS = 10_000
_GENERAL = {"quiet": Annotated[bool, _QUIET], "verbose": Annotated[int, _VERBOSE]}


def _with_general_options(function: Callable[..., Any], extra: Mapping[str, Any]) -> Callable[..., Any]:
    """Give a command's function ``-q`` and ``-v``, unless it has parameters of these names."""
    signature = inspect.signature(function, eval_str=True)
    added = {name: kind for name, kind in extra.items() if name not in signature.parameters}

    @functools.wraps(function)
    def command(*args: Any, **kwargs: Any) -> Any:
        for name in added:
            kwargs.pop(name, None)
        return function(*args, **kwargs)

    keyword = inspect.Parameter.KEYWORD_ONLY
    defaults = {"quiet": False, "verbose": 0, "version": False}
    parameters = list(signature.parameters.values())
    parameters += [inspect.Parameter(n, keyword, default=defaults[n], annotation=a) for n, a in added.items()]
    command.__signature__ = signature.replace(parameters=parameters)  # ty: ignore[missing-attribute]
    command.__annotations__ = {p.name: p.annotation for p in parameters if p.annotation is not p.empty}
    return command


class PaperApp(typer.Typer):
    """A Typer app with the workspace's manners; made by `paper_app`."""

    def __init__(self, package: str, **settings: Any) -> None:
        self.package = package
        plain: dict[str, Any] = {"pretty_exceptions_enable": False, "add_completion": False, "rich_markup_mode": None}
        plain |= {"cls": PaperGroup} | settings
        super().__init__(**plain)

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Register a command as Typer does, with ``-q`` and ``-v`` added."""
        options: dict[str, Any] = {"cls": PaperCommand} | settings
        register = super().command(name, **options)

        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            register(_with_general_options(function, _GENERAL))
            return function

        return decorate

    def callback(self, **settings: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Register the function that runs before any command, with ``-q``, ``-v`` and ``--version`` added."""
        options: dict[str, Any] = {"cls": PaperGroup} | settings
        register = super().callback(**options)

        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            register(_with_general_options(function, {**_GENERAL, "version": _version_option(self.package)}))
            return function

        return decorate


def _version_option(package: str) -> Any:
    def show(value: bool) -> None:
        if value:
            from papers_shared._provenance import package_version

            typer.echo(f"{package} {package_version(package)}")
            raise typer.Exit

    option = typer.Option("--version", callback=show, is_eager=True, metavar="", help="Print the version.")
    return Annotated[bool, option]


def paper_app(package: str, *, help: str | None = None, claims: bool = True, **settings: Any) -> PaperApp:
    r"""Make a package's command line.

    Parameters
    ----------
    package
        The import name; its version answers ``--version``, and ``<package>.claims`` is what ``claims`` runs.
    help
        The first lines of ``--help``; plain text, re-wrapped except for paragraphs that begin with a line ``\\b``.
    claims
        Mount the ``claims`` subcommand; false for an app that is a part of another one.
    **settings
        Passed on to ``typer.Typer``.

    Returns
    -------
    PaperApp
        A ``typer.Typer`` that is also the console script.

    Examples
    --------
    >>> app = paper_app("bitresedit", help="Edit photos by text inside a mask.")
    >>> @app.command()
    ... def edit(photo: Path, source: str, target: str, force: bool = False) -> None: ...
    >>> edit_script = verb(app, "edit")

    with, in ``pyproject.toml``::

        [project.scripts]
        bitresedit = "bitresedit.cli:app"
        edit = "bitresedit.cli:edit_script"
    """
    app = PaperApp(package, help=help, **settings)

    @app.callback(invoke_without_command=True, help=help)
    def start(ctx: typer.Context) -> None:
        if ctx.invoked_subcommand is None:
            typer.echo(ctx.get_help())

    if claims:
        _mount_claims(app, package)
    return app


def _mount_claims(app: PaperApp, package: str) -> None:
    @app.command("claims")
    def claims_command(
        scale: Annotated[
            str, typer.Option(help="small: minutes on two cores; paper: the paper's own setting.")
        ] = "small",
        only: Annotated[str | None, typer.Option(help="Run only these, for example C1,C3.")] = None,
        seeds: Annotated[str | None, typer.Option(help="A number of seeds, a list 0,5 or a range 1..4.")] = None,
        out: Annotated[
            Path | None, typer.Option(help="Folder to write to; by default PACKAGE-claims-SCALE here.")
        ] = None,
        strict: Annotated[bool, typer.Option("--strict", help="Exit 1 if a claim that must hold does not.")] = False,
        resume: Annotated[bool, typer.Option("--resume", help="Keep the claims already measured.")] = False,
        force: Annotated[bool, typer.Option("--force", help="Measure again and replace what is there.")] = False,
        json_: Annotated[bool, typer.Option("--json", help="Print claims.json instead of the table.")] = False,
    ) -> None:
        """Re-test what the paper claims and report what was measured."""
        from papers_shared import claims

        code = claims.main(
            package, scale=scale, only=only, seeds=seeds, out=out, strict=strict, resume=resume, force=force, json=json_
        )
        raise typer.Exit(code)


def verb(app: PaperApp, name: str) -> Callable[..., Any]:
    """Make a console script of one command or sub-app, with the same manners and its own ``--version``.

    Parameters
    ----------
    app
        The package's app.
    name
        The command's name as typed. It may be registered later than this call.

    Returns
    -------
    callable
        For ``[project.scripts]``. Takes ``args=[...]`` instead of ``sys.argv``, as tests do.
    """

    def script(args: Sequence[str] | None = None) -> None:
        _command_of(app, name).main(args=args, prog_name=name)

    return script


def _command_of(app: PaperApp, name: str) -> Any:
    for group in app.registered_groups:
        part = group.typer_instance
        if part is not None and name in (group.name, part.info.name):
            return typer.main.get_command(part)
    for info in app.registered_commands:
        function: Any = info.callback
        if function is not None and name == (info.name or typer.main.get_command_name(function.__name__)):
            alone = copy.copy(info)
            alone.callback = _with_general_options(function, {"version": _version_option(app.package)})
            holder = PaperApp(app.package)
            holder.registered_commands.append(alone)
            return typer.main.get_command(holder)
    raise LookupError(f"{app.package} has no command {name!r}")


def quiet() -> bool:
    """Tell whether ``-q`` was given: show no progress and no notes."""
    return Settings.quiet


def track(iterable: Iterable[Any], description: str, total: float | None = None) -> Iterator[Any]:
    """Yield from ``iterable`` with progress and ETA on stderr; silent under ``-q``.

    Parameters
    ----------
    iterable
        What to go through.
    description
        What is being done, a few words.
    total
        The number of items, when ``iterable`` has no length.
    """
    return _progress.track(iterable, description, total, quiet=Settings.quiet)


def progress(description: str, total: float | None = None) -> contextlib.AbstractContextManager[_progress.Progress]:
    """Show progress for work that is not a loop over items; silent under ``-q``.

    Examples
    --------
    >>> with progress("training", total=steps) as bar:
    ...     bar.advance(1, note=f"loss {loss:.3f}")
    """
    return _progress.progress(description, total, quiet=Settings.quiet)


def emit_json(value: Any) -> None:
    """Print strict JSON on stdout, as ``--json`` does."""
    from papers_shared._json import dumps

    sys.stdout.write(dumps(value) + "\n")


def table(
    rows: Iterable[Mapping[str, Any] | Sequence[Any]],
    columns: Sequence[str] | None = None,
    *,
    title: str | None = None,
) -> None:
    """Print a table on stdout: numbers to four significant digits and right-aligned, None as a dash.

    Parameters
    ----------
    rows
        Mappings, or sequences in the order of ``columns``.
    columns
        The header; by default the keys in order of first appearance.
    title
        A line above.
    """
    from papers_shared._table import render

    sys.stdout.write(render(list(rows), columns, title=title))


def parse_seeds(text: str) -> tuple[int, ...]:
    """Read seeds: ``"3"`` is three seeds 0, 1, 2; ``"0,5"`` these two; ``"1..4"`` is 1, 2, 3, 4.

    Raises
    ------
    InputError
        Anything else, a negative seed, or none.
    """
    try:
        if ".." in text:
            first, last = (int(part) for part in text.split(".."))
            seeds: Sequence[int] = range(first, last + 1)
        elif "," in text:
            seeds = [int(part) for part in text.split(",") if part.strip()]
        else:
            seeds = range(int(text))
    except ValueError:
        seeds = ()
    if not seeds or min(seeds[0], seeds[-1], *seeds[:_MOST_SEEDS]) < 0:
        raise InputError(f"--seeds {text}: not seeds", hint="give a number (3), a list (0,5) or a range (1..4)")
    if seeds[_MOST_SEEDS:]:
        raise InputError(f"--seeds {text}: more than {_MOST_SEEDS}", hint="a number is a count; one seed 7 is 7..7")
    return tuple(dict.fromkeys(seeds))
