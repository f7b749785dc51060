"""The store: a DuckDB file with every record whole, its results as rows, and named snapshots that never change."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from evalcards import lookup, warehouse
from evalcards.errors import ImportFailure, InputError
from evalcards.hierarchy import BenchmarkIndex
from evalcards.identity import ModelIndex, slug
from evalcards.parquet_export import export_parquet
from evalcards.readonly import run_query
from evalcards.rows import Codes, Encoder, log_id
from evalcards.schema import BenchmarkCard, EvalLog, ModelMeta, Triple, read_log
from evalcards.signals.completeness import Completeness, Field, completeness
from evalcards.tables import forget_failures, insert, instance_line, prepare, refuse_other_files, write_batch

SIGNAL_VERSION = "1.0"


class Added(NamedTuple):
    """What adding logs did."""

    logs: int
    rows: int
    duplicates: int


class Store:
    """Hold records, rows and signals in one DuckDB file.

    Parameters
    ----------
    path
        The file, made if missing; None keeps everything in memory.
    read_only
        Open an existing file without the right to change it; several processes may do so at once.

    Raises
    ------
    InputError
        The file is no store, is used by another process, or its folder is missing.

    Examples
    --------
    >>> store = Store(None)
    >>> store.add(importers.lm_eval("results.json").logs)
    >>> store.triples()
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, read_only: bool = False) -> None:
        self.path = None if path is None else Path(path)
        self.read_only = read_only
        self._fields: tuple[Field, ...] | None = None
        self._strict_empty = False
        if self.path is not None:
            refuse_other_files(self.path)
        try:
            # An absolute path is a file whatever its name, ":memory:" and "md:x" too; and nothing is ever downloaded.
            self._connection = duckdb.connect(
                ":memory:" if self.path is None else str(self.path.absolute()),
                read_only=read_only,
                config={"autoinstall_known_extensions": "false"},
            )
            # DuckDB would draw it on stdout, which carries the answer.
            self._connection.execute("SET enable_progress_bar = false")
            prepare(self._connection, str(path), new=not read_only)
            self._load()
        except duckdb.Error as error:
            first = str(error).splitlines()[0]
            locked = "set lock" in first or "used by another process" in first
            hint = "stop the evalcards that uses it" if locked else "name a file made by evalcards"
            if "version number" in first:
                hint = "a newer DuckDB made it: update duckdb"
            raise InputError(f"cannot open the store {path}: {first}", hint=hint) from error

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the file."""
        self._connection.close()

    @contextlib.contextmanager
    def transaction(self) -> Generator[duckdb.DuckDBPyConnection]:
        """Give the connection for changes of which all are made, or after an error none."""
        self._connection.begin()
        try:
            yield self._connection
            self._connection.commit()
        except BaseException:
            self._connection.rollback()
            raise

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """Return a connection of its own for a thread."""
        return self._connection.cursor()

    def fetch(self, sql: str, values: Any = ()) -> list[tuple[Any, ...]]:
        """Run a query of ours and return its rows."""
        return self._connection.cursor().execute(sql, values).fetchall()

    def records(self, sql: str, values: Any = ()) -> list[dict[str, Any]]:
        """Run a query of ours and return its rows as mappings."""
        cursor = self._connection.cursor().execute(sql, values)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def _load(self) -> None:
        """Read the dictionaries that encoding needs."""
        self.cards = {
            name: BenchmarkCard.model_validate(json.loads(text))
            for name, text in self.fetch("SELECT benchmark, document FROM cards ORDER BY benchmark")
        }
        aliases = dict(self.fetch("SELECT alias, model_id FROM aliases"))
        models = [name for (name,) in self.fetch("SELECT model_id FROM models")]
        groups = self.fetch("SELECT model_id, path, metric, group_id FROM groups")
        self._encoder = Encoder(
            ModelIndex(models, aliases),
            self.cards,
            Codes(self.fetch("SELECT code, text FROM settings ORDER BY code")),
            Codes(self.fetch("SELECT code, text FROM organisations ORDER BY code")),
            {(model, path, metric): group for model, path, metric, group in groups},
        )
        self._benchmark_signals: dict[str, Completeness] | None = None

    @property
    def models(self) -> ModelIndex:
        """The registered models, by which names are resolved."""
        return self._encoder.models

    @property
    def benchmarks(self) -> BenchmarkIndex:
        """The benchmarks' names, as their cards claim them."""
        return self._encoder.benchmarks

    def add(
        self,
        logs: Iterable[EvalLog],
        *,
        failures: Iterable[ImportFailure] = (),
        instances: Mapping[str, list[dict[str, Any]]] | None = None,
        ledger: Iterable[tuple[str, str, str, int, int, int]] = (),
        origins: Mapping[str, str] | None = None,
        renewed: Iterable[str] = (),
    ) -> Added:
        """Add logs in one transaction: all of them, or after an error none.

        Parameters
        ----------
        logs
            Records, for example ``importers.eee(path).logs``. One that is there already is not added again.
        failures
            Results that did not become rows, for the failure report.
        instances
            Evaluation id to instance records in EEE's form.
        ledger
            (file hash, path, format, logs, rows, failed) of each file that is now done.
        origins
            Evaluation id to the file it came from.
        renewed
            Files, or folders, that are read again: what the failure report says of them goes.

        Returns
        -------
        Added
        """
        chosen = list(logs)
        identities = [log_id(log.document) for log in chosen]
        query = "SELECT log_id FROM logs WHERE log_id IN (SELECT unnest(?))"
        known = {found for (found,) in self.fetch(query, [identities])} if identities else set()
        encoder = self._encoder
        encoder.start()
        rows = duplicates = 0
        added: dict[str, str] = {}
        for log, identity in zip(chosen, identities, strict=True):
            if identity in known:
                duplicates += 1
                continue
            known.add(identity)
            added[log.evaluation_id] = identity
            rows += encoder.add(log, identity, (origins or {}).get(log.evaluation_id, ""))
        try:
            with self.transaction() as connection:
                write_batch(connection, encoder)
                self._write_instances(instances or {}, added)
                forget_failures(connection, list(renewed))
                insert(connection, "failures", [(f.path, f.where, f.reason, f.rows) for f in failures])
                insert(connection, "ledger", list(ledger))
                if rows:
                    self._mark_changed()
        except BaseException:
            self._load()
            raise
        return Added(len(added), rows, duplicates)

    def _write_instances(self, instances: Mapping[str, list[dict[str, Any]]], added: Mapping[str, str]) -> None:
        for evaluation, samples in instances.items():
            identity = added.get(evaluation)
            if identity is None:
                found = self.fetch("SELECT log_id FROM logs WHERE evaluation_id = ?", [evaluation])
                identity = found[0][0] if found else evaluation
            lines = [instance_line(identity, sample) for sample in samples]
            insert(self._connection, "instances", lines, verb="INSERT OR IGNORE")

    def _mark_changed(self) -> None:
        self._connection.execute("DELETE FROM meta WHERE key = 'signals'")
        self._benchmark_signals = None

    def done(self, hashes: Iterable[str]) -> set[str]:
        """Return which of the files, by hash, an earlier import has finished."""
        query = "SELECT file_hash FROM ledger WHERE file_hash IN (SELECT unnest(?))"
        return {found for (found,) in self.fetch(query, [list(hashes)])}

    def add_cards(self, cards: Iterable[BenchmarkCard]) -> None:
        """Add or replace benchmark cards and put all rows where the cards' aliases say they belong."""
        lines = [
            (slug(card.name), json.dumps(card.model_dump(exclude_unset=True), ensure_ascii=False)) for card in cards
        ]
        self._replace("cards", "benchmark", lines)

    def add_models(self, models: Iterable[ModelMeta]) -> None:
        """Register models: their ids and aliases are what names are resolved against."""
        listed = list(models)
        lines = [(m.id, json.dumps(m.model_dump(exclude_unset=True), ensure_ascii=False)) for m in listed]
        self._replace("models", "model_id", lines, [(alias, m.id) for m in listed for alias in m.aliases])

    def _replace(
        self, table: str, key: str, lines: list[tuple[str, str]], aliases: list[tuple[str, str]] | None = None
    ) -> None:
        if not lines:
            return
        with self.transaction() as connection:
            for name, column, changed in ((table, key, lines), ("aliases", "alias", aliases or [])):
                if changed:
                    connection.executemany(f"DELETE FROM {name} WHERE {column} = ?", [(line[0],) for line in changed])
                    insert(connection, name, list({line[0]: line for line in changed}.values()))
            self._mark_changed()
        self._load()
        if self.fetch("SELECT 1 FROM logs LIMIT 1"):
            self._rebuild()

    def _rebuild(self) -> None:
        """Encode all logs again from their documents: names may resolve elsewhere now."""
        old = self._encoder
        stored = self.fetch("SELECT log_id, document, origin FROM logs ORDER BY rowid")
        encoder = Encoder(old.models, self.cards, old.settings, old.organisations, {})
        for identity, text, origin in stored:
            encoder.add(read_log(json.loads(text)), identity, origin)
        try:
            with self.transaction() as connection:
                for table in ("results", "groups", "logs"):
                    connection.execute(f"TRUNCATE {table}")
                write_batch(connection, encoder)
        finally:
            self._load()

    def signals(self, profile: str = "paper", factor: float = 1.0) -> dict[str, Any]:
        """Bring the tables of signals up to date and return the settings they were computed with.

        Parameters
        ----------
        profile
            Reproducibility profile ``paper``, ``paper-h1``, ``spec4`` or ``slots``.
        factor
            Multiplies all thresholds.
        """
        wanted = {"profile": profile, "factor": factor, "version": SIGNAL_VERSION}
        found = self.fetch("SELECT value FROM meta WHERE key = 'signals'")
        if found and json.loads(found[0][0]) == wanted:
            return wanted
        if self.read_only:
            raise InputError(
                f"{self.path}: signals are not computed with profile {profile} and factor {factor:g}",
                hint="run: evalcards signals --store FILE",
            )
        warehouse.compute(self._connection, profile=profile, factor=factor)
        self._connection.execute("INSERT OR REPLACE INTO meta VALUES ('signals', ?)", [json.dumps(wanted)])
        self._benchmark_signals = None
        return wanted

    def signals_settings(self) -> dict[str, Any]:
        """Return the settings of the tables of signals, computing these with the defaults where there are none."""
        found = self.fetch("SELECT value FROM meta WHERE key = 'signals'")
        return json.loads(found[0][0]) if found else self.signals()

    def reporting_schema(self, fields: tuple[Field, ...] | None = None, strict_empty: bool = False) -> None:
        """Choose the fields, and the reading of empty values, by which completeness is told from now on."""
        self._fields, self._strict_empty = fields, strict_empty
        self._benchmark_signals = None

    def completeness(self) -> dict[str, Completeness]:
        """Return the completeness of every benchmark that has a card or a result, by its slug."""
        if self._benchmark_signals is None:
            records = lookup.benchmark_records(self)
            self._benchmark_signals = {
                name: completeness(record, self._fields, self._strict_empty) for name, record in records.items()
            }
        return self._benchmark_signals

    def triples(self, model: str | None = None, benchmark: str | None = None) -> list[Triple]:
        """Return result triples with how many rows report each.

        Parameters
        ----------
        model, benchmark
            Only of this canonical model, or of this benchmark's slug.
        """
        found = self.fetch(
            """SELECT model_id, path, metric, benchmark, count(*) FROM results JOIN groups USING (group_id)
            WHERE ($model IS NULL OR model_id = $model) AND ($benchmark IS NULL OR benchmark = $benchmark)
            GROUP BY ALL ORDER BY model_id, path, metric""",
            {"model": model, "benchmark": benchmark},
        )
        return [Triple(*line) for line in found]

    def logs(self, model: str | None = None) -> list[dict[str, Any]]:
        """Return the documents of all logs, or of one model's, as they were imported."""
        found = self.fetch(
            """SELECT document FROM logs WHERE $model IS NULL OR log_id IN
            (SELECT log_id FROM results JOIN groups USING (group_id) WHERE model_id = $model) ORDER BY log_id""",
            {"model": model},
        )
        return [json.loads(text) for (text,) in found]

    def find_model(self, name: str) -> str:
        """Return the canonical id of a model with results, named by id, alias or route.

        Raises
        ------
        UnknownModel
            No result is of this model; the hint names near ones.
        """
        return lookup.find_model(self, name)

    def model_meta(self, model: str) -> ModelMeta | None:
        """Return what is registered of a model, by its canonical id."""
        found = self.fetch("SELECT document FROM models WHERE model_id = ?", [model])
        return ModelMeta.model_validate(json.loads(found[0][0])) if found else None

    def model(self, name: str) -> dict[str, Any]:
        """Return what is stored of a model: ``id``, ``meta`` (or None), ``triples``; see `find_model`."""
        found = self.find_model(name)
        return {"id": found, "meta": self.model_meta(found), "triples": self.triples(model=found)}

    def find_benchmark(self, name: str) -> str:
        """Return the slug of a benchmark that has a card or a result.

        Raises
        ------
        UnknownModel
            There is neither; the hint names near ones.
        """
        return lookup.find_benchmark(self, name)

    def benchmark(self, name: str) -> dict[str, Any]:
        """Return what is stored of a benchmark: ``id``, ``card`` (or None), ``triples``; see `find_benchmark`."""
        found = self.find_benchmark(name)
        return {"id": found, "card": self.cards.get(found), "triples": self.triples(benchmark=found)}

    def snapshot(self, name: str) -> dict[str, Any]:
        """Record the present rows, signals and rates under a name; see `evalcards.snapshots.take`."""
        from evalcards import snapshots

        return snapshots.take(self, name)

    def query(self, sql: str) -> pa.Table:
        """Run a SELECT of the user's on a connection of its own, which can change nothing and sees only the tables.

        Raises
        ------
        InputError
            The text is no single SELECT, or DuckDB refuses it.
        """
        return run_query(self.cursor(), sql)

    def export(self, folder: str | os.PathLike[str], *, parts: int | None = None, force: bool = False) -> list[Path]:
        """Write the tables as Parquet files into ``folder``, each whole or not at all.

        Parameters
        ----------
        folder
            Where to.
        parts
            Split the tables of results and signals into so many ``table/part=N`` folders, by triple.
        force
            Replace files that are there.

        Raises
        ------
        InputError
            A file is there already and ``force`` is false.
        """
        self.signals()
        return export_parquet(self, folder, parts=parts, force=force)
