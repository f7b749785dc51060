"""Where records come from: the options that every verb which reads files has, and the reading itself."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evalcards.cli_common import say
from papers_shared.cli import progress
from papers_shared.errors import InputError

if TYPE_CHECKING:
    from evalcards.importers import Options
    from evalcards.importing import ImportReport
    from evalcards.store import Store

MAX_BYTES = 512 * 2**20
_RELATIONSHIPS = ("first_party", "third_party", "collaborative", "other")

MaxBytes = Annotated[int, typer.Option("--max-bytes", min=1, help="The most that one record or archive member may be.")]


@dataclasses.dataclass(frozen=True)
class Sources:
    """What the user says about the files to read; each field is an option."""

    benchmark_card: Annotated[
        list[Path] | None, typer.Option("--benchmark-card", help="JSON file with benchmark cards.")
    ] = None
    models: Annotated[Path | None, typer.Option("--models", help="JSON file with model metadata and aliases.")] = None
    format: Annotated[
        str | None, typer.Option("--format", help="eee, lm_eval, helm, inspect, hf_model_card or csv.")
    ] = None
    mapping: Annotated[Path | None, typer.Option("--mapping", help="What a CSV's columns are (YAML or JSON).")] = None
    model_id: Annotated[
        str | None, typer.Option("--model-id", help="The model's id, where the file has only a local path.")
    ] = None
    organisation: Annotated[
        str | None, typer.Option("--organisation", help="Who ran it, where the file does not say.")
    ] = None
    relationship: Annotated[
        str | None,
        typer.Option("--relationship", help="Theirs to the model: first_party, third_party, collaborative or other."),
    ] = None
    max_bytes: MaxBytes = MAX_BYTES

    def check(self) -> Options:
        """Return what the files do not say, after a look at all that the user did say.

        Raises
        ------
        InputError
            No such relationship or format, or a mapping that is none.
        """
        from evalcards.importers import FORMATS, Options
        from evalcards.importers.csv_table import read_mapping

        for option, given, known in (
            ("--relationship", self.relationship, _RELATIONSHIPS), ("--format", self.format, tuple(FORMATS))
        ):  # fmt: skip
            if given is not None and given not in known:
                raise InputError(f"{option} {given}: want one of {', '.join(known)}")
        if self.mapping is not None:
            read_mapping(self.mapping)
        return Options(self.model_id, self.organisation, self.relationship, self.max_bytes)

    def open_store(self, path: Path | None, make: Callable[[Path | None], Store] | None = None) -> Store:
        """Open or make a store, in memory without a path, and register the user's cards and models.

        Parameters
        ----------
        path
            The store's file.
        make
            What makes a store that is not there yet; by default one with the package's own cards and models.
        """
        from evalcards import data
        from evalcards.cli_common import fresh_store
        from evalcards.store import Store

        cards = [card for file in self.benchmark_card or [] for card in data.read_cards(file)]
        named = [] if self.models is None else data.read_models(self.models)
        there = path is not None and path.exists()
        store = Store(path) if there else (make or fresh_store)(path)
        store.add_cards(cards)
        store.add_models(named)
        return store

    def read(self, store: Store, files: list[Path], urls: list[str]) -> ImportReport:
        """Read files and addresses into a store."""
        from evalcards.importing import ImportReport, import_files, import_remote

        options, report = self.check(), ImportReport()
        if files:
            with progress("importing", total=len(files)) as bar:
                report = import_files(store, files, options, format=self.format, mapping=self.mapping,
                                      progress=lambda done, of: bar.update(done, total=of))  # fmt: skip
        for url in urls:
            report = report.plus(import_remote(store, url, options))
        return report


def with_sources(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of `Sources` in place of its parameter ``sources``."""
    options = typing.get_type_hints(Sources, include_extras=True)
    fields = {field.name: field.default for field in dataclasses.fields(Sources)}
    signature = inspect.signature(command, eval_str=True)
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        if parameter.name == "sources":
            parameters += [inspect.Parameter(n, keyword, default=d, annotation=options[n]) for n, d in fields.items()]
        else:
            parameters.append(parameter.replace(kind=keyword))

    @functools.wraps(command)
    def whole(**given: Any) -> Any:
        return command(sources=Sources(**{name: given.pop(name) for name in fields}), **given)

    whole.__signature__ = signature.replace(parameters=parameters)  # ty: ignore[missing-attribute]
    whole.__annotations__ = {p.name: p.annotation for p in parameters}
    return whole


def split_inputs(inputs: list[str], remote: bool) -> tuple[list[Path], list[str]]:
    """Return the files and the addresses that are meant, before anything is written.

    Raises
    ------
    InputError
        An address without ``--remote``, an empty name, or a file that is not there.
    """
    from evalcards.importing import expand

    if not all(name.strip() for name in inputs):
        raise InputError("an input is empty", hint="name files or folders; . is this folder")
    urls = [name for name in inputs if name.startswith(("http://", "https://"))]
    if urls and not remote:
        raise InputError(f"{urls[0]}: a remote address", hint="pass --remote to read it over the network")
    return expand(name for name in inputs if name not in urls), urls


def tell(report: ImportReport, where: Path) -> None:
    """Say on stderr what an import did, and where its failures are written."""
    from evalcards.sentences import many

    say(
        f"{many(report.files, 'file')} read, {report.skipped:,} read before; {many(report.found, 'result')} found = "
        f"{many(report.rows, 'row')} + {report.failed:,} failed; {many(report.logs, 'record')} added, "
        f"{report.duplicates:,} there already"
    )
    for failure in report.failures[:10]:
        say(f"not imported: {failure}")
    if report.failures:
        more = f"... and {len(report.failures) - 10:,} more; " if len(report.failures) > 10 else ""
        say(f"{more}the failure report is {where}")
