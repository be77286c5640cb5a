"""`lightning-learn export`: write transitions to a file that a trainer reads."""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from otel_lightning.collector.files.atomic import wanted_file
from otel_lightning.collector.store import Store, StoreLike, opened, statement
from otel_lightning.collector.store.sql_text import Value
from otel_lightning.collector.terminal.progress import Progress
from otel_lightning.learner import credit
from otel_lightning.learner.chat import CUT_OFF, INCOMPLETE
from otel_lightning.learner.credit import Options
from otel_lightning.learner.errors import DataError, no_transitions
from otel_lightning.learner.export.formats.rows import MESSAGES, NO_TEXT, Format, LeftOutError, Row
from otel_lightning.learner.named_sql import number, read
from otel_lightning.learner.runs import to_json
from otel_lightning.learner.task_splits import HELD_OUT, TRAIN
from otel_lightning.learner.transitions.stage import CALLS_A_BUCKET, bounded

ROWS_AT_ONCE = 1_000
"""Number of transitions that are in memory with their text."""
SPLITS = {"train": (TRAIN,), "heldout": (HELD_OUT,), "all": (TRAIN, HELD_OUT)}

PIECE = 20 * 1024
"""Number of stored calls whose text is joined in one piece."""
EVERYTHING = (0, 2**62)
"""Range of row ids that includes every call."""

Rows: TypeAlias = list[dict[str, Any]] | pa.RecordBatch
"""Rows that a format made, or unchanged source rows."""
Write = Callable[[Rows], None]


@dataclass(slots=True)
class Exported:
    """Numbers about the written rows."""

    rows: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    """Number of source rows that were not written, by reason."""
    without: Counter[str] = field(default_factory=Counter)
    """Number of written rows from which the format dropped something, by the dropped part."""
    shuffled: int | None = None
    """Seed by which the rewards of the transitions were shuffled; None if they were not."""


@dataclass(frozen=True, slots=True)
class Overview:
    """Numbers about the transitions of the chosen splits."""

    rows: int
    tasks: int
    ties: int
    """Number of transitions whose advantage is 0."""
    best: float | None
    """The highest advantage."""
    credit: str
    shuffled: int | None
    """Seed by which the rewards were shuffled."""
    compares: bool
    """Whether the credit compared the rollouts of a task: then an advantage of 0 is no verdict."""

    @property
    def has_only_ties(self) -> bool:
        """Whether the rollouts of no task differ in their rewards."""
        return self.compares and 0 < self.ties == self.rows


def export_transitions(
    store: StoreLike, form: Format, output: Path, *, split: str, threshold: float
) -> Exported:
    """Write the transitions of a store to a file. The file appears only when it is complete.

    Args:
        store: Path of the store, or an open store.
        form: One of `FORMATS`.
        output: `.parquet` or `.jsonl`.
        split: `train`, `heldout` or `all`.
        threshold: Export only advantages (or margins between two answers) above this.

    Raises:
        DataError: If there is nothing to write, the file name has an unknown ending, or the
            threshold is not finite.
        StoreError: If the store cannot be read.
    """
    writer = WRITERS.get(output.suffix)
    if writer is None:
        raise DataError(f"'{output}' must end with {' or '.join(WRITERS)}.")
    if not math.isfinite(threshold):
        raise DataError(f"--threshold is {threshold}; it must be a finite number.")
    with wanted_file(output) as temporary:
        with opened(store) as db, bounded(db), writer(temporary, form) as write:
            if not db.count("transition_rows"):
                raise no_transitions(store)
            totals = overview(db, split)
            # Whether rows with advantage 0 are exported: a comparing credit gives 0 to ties, which
            # are neither good nor bad, so a label would be made up.
            ties = not (form.is_label and totals.compares)
            exported = _write_all(_read(db, form, split, threshold, ties=ties), form, write)
            unread = {} if form.by_call else _unread(db, form, split)
        if not ties and totals.ties:
            exported.left_out[
                f"an advantage of 0 by credit '{totals.credit}', which is no label"
            ] = totals.ties
        if not exported.rows:
            raise DataError(_why_nothing(form, (exported, unread), totals, split, threshold))
    exported.shuffled = totals.shuffled
    exported.left_out.update({f"calls with {reason}": count for reason, count in unread.items()})
    return exported


def overview(store: Store, split: str) -> Overview:
    """Count the transitions of a split, and find the credit that they were built with."""
    numbers = read(store, __package__, "overview", splits=SPLITS[split]).row(0, named=True)
    configs = read(store, __package__, "settings")["config"]
    config = json.loads(configs[0]) if len(configs) else {}
    recorded = {f.name: config[f.name] for f in fields(Options) if f.name in config}
    method = str(config.get("credit", "identical"))
    try:
        compares = credit.compares(method, Options(**recorded))
    except DataError:  # built by a release that had other credit methods
        compares = False
    shuffled = config.get("shuffle_rewards")
    return Overview(**numbers, credit=method, shuffled=shuffled, compares=compares)


def _unread(store: Store, form: Format, split: str) -> dict[str, int]:
    """Count the calls that no pair or prompt is made from, by the reason."""
    chosen: dict[str, Value] = {"splits": SPLITS[split], "pairs": form.has_pairs}
    reasons: dict[str, Value] = {"no_text": NO_TEXT, "incomplete": INCOMPLETE, "cut_off": CUT_OFF}
    return dict(read(store, __package__, "unread_calls", **chosen, **reasons).iter_rows())


def _read(
    store: Store, form: Format, split: str, threshold: float, *, ties: bool
) -> Iterator[pa.RecordBatch]:
    values: dict[str, Value] = {
        "splits": SPLITS[split],
        "threshold": float(threshold),
        "all": not form.above_threshold,
        "ties": ties,
        "incomplete": INCOMPLETE,
        "cut_off": CUT_OFF,
    }
    progress, total = Progress("Export", 0), 0
    for first, last in _pieces(store, values) if form.by_call else [EVERYTHING]:
        piece = statement(__package__, form.statement, first=first, last=last, **values)
        # Rows that Python converts need much memory each; others are passed on as Arrow.
        for batch in store.stream(piece, ROWS_AT_ONCE if form.row else PIECE):
            total += len(batch)
            progress.report(total, "transitions read")
            yield batch


def _pieces(store: Store, values: Mapping[str, Value]) -> list[tuple[int, int]]:
    """Stage the exported rows, and return the ranges of row ids to read one after the other.

    A small store is one range. So is a store that an ingester writes to, because the ingester may
    change row ids.
    """
    if store.server or store.count("transition_rows") <= CALLS_A_BUCKET:
        store.execute(statement(__package__, "stage_whole", **values))
        return [EVERYTHING]
    store.execute(statement(__package__, "stage_pieces", **values))
    last = number(store, "SELECT coalesce(max(place), 0) FROM exported")
    return [(first, first + PIECE - 1) for first in range(0, last + 1, PIECE)]


def _write_all(batches: Iterator[pa.RecordBatch], form: Format, write: Write) -> Exported:
    exported = Exported()
    for batch in batches:
        if form.row is None:
            write(batch.select(list(form.columns)))
            exported.rows += len(batch)
            continue
        rows = list(_new_rows(form, form.row, batch.to_pylist(), exported))
        exported.rows += len(rows)
        write(rows)
    return exported


def _new_rows(
    form: Format, row: Callable[[Row], dict[str, Any]], sources: list[Row], exported: Exported
) -> Iterator[dict[str, Any]]:
    for source in sources:
        try:
            new_row = row(source)
        except LeftOutError as error:
            exported.left_out[str(error)] += 1
            continue
        # Counted after the row was made, so that a row that is left out does not count here too.
        exported.without.update(form.without(source) if form.without else ())
        yield new_row


def _why_nothing(
    form: Format,
    left_out_by: tuple[Exported, Mapping[str, int]],
    totals: Overview,
    split: str,
    threshold: float,
) -> str:
    """Explain why no row was written.

    Args:
        form: The format.
        left_out_by: The rows that were left out, and the calls without a row, by the reason.
        totals: Numbers about the transitions of the split.
        split: Name of the split.
        threshold: Advantage or margin that rows must exceed.
    """
    exported, unread = left_out_by
    if form.is_label and totals.has_only_ties:
        return _why_nothing_above(totals, 0.0, split, threshold)
    left_out = exported.left_out + Counter(unread)
    reasons = "; ".join(f"{n:,} with {why}" for why, n in left_out.items())
    if exported.left_out or (unread and sum(unread.values()) == totals.rows):
        return (
            f"No row of split '{split}' can be written in this format: {reasons}. Record message "
            "content in the agent, or choose a format that takes token ids, or `transitions`."
        )
    if form.above_threshold and totals.best is not None:
        return _why_nothing_above(totals, totals.best, split, threshold)
    empty = form.empty.format(split=split, threshold=threshold)
    return f"{empty} Calls that were left out: {reasons}." if reasons else empty


def _why_nothing_above(totals: Overview, best: float, split: str, threshold: float) -> str:
    """Explain why no advantage is above the threshold; advise a lower one only if best > 0."""
    if best > 0:
        return (
            f"No advantage in split '{split}' is above {threshold:g}; the highest is {best:g}. "
            "Lower --threshold."
        )
    if totals.has_only_ties:
        return (
            f"All {totals.rows} advantages in split '{split}' are 0: credit '{totals.credit}' "
            f"compares the rollouts of a task, and none of {totals.tasks:,} tasks has two rollouts "
            "with different rewards. Collect several rollouts per task, or build the transitions "
            "with --credit identical. A lower --threshold would teach answers of unknown worth."
        )
    return (
        f"No advantage in split '{split}' is above 0 (the highest is {best:g}), so no answer is "
        "known to be good. Collect rollouts that succeed. A lower --threshold would teach answers "
        "that failed."
    )


@contextmanager
def _json_lines(path: Path, form: Format) -> Iterator[Write]:  # noqa: ARG001 - one signature
    with path.open("w", encoding="utf-8") as file:

        def write(rows: Rows) -> None:
            if isinstance(rows, pa.RecordBatch):
                rows = rows.to_pylist()
            file.writelines(_line(row) for row in rows)

        yield write


def _line(row: Mapping[str, Any]) -> str:
    try:
        return json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n"
    except ValueError:  # such as the logprob of a token that had the probability 0
        return to_json(row, ensure_ascii=False) + "\n"


@contextmanager
def _parquet(path: Path, form: Format) -> Iterator[Write]:
    schema = pa.schema(form.columns)
    # Unconverted rows are written as fast as they compress, hence lz4. Otherwise the conversion in
    # Python takes longer than zstd.
    with pq.ParquetWriter(path, schema, compression="zstd" if form.row else "lz4") as file:

        def write(rows: Rows) -> None:
            if isinstance(rows, pa.RecordBatch):
                file.write_batch(rows.cast(schema))
                return
            arrays = [_column([row.get(f.name) for row in rows], f.type) for f in schema]
            file.write_table(pa.Table.from_arrays(arrays, schema=schema))

        yield write


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    if kind != MESSAGES:
        return pa.array(values, kind)
    texts = [
        None if chat is None else [json.dumps(m, ensure_ascii=False) for m in chat]
        for chat in values
    ]
    # pyarrow cannot build its JSON type from Python objects, so the texts are cast.
    return pa.array(texts, pa.list_(pa.utf8())).cast(MESSAGES)


WRITERS: Mapping[str, Any] = {".parquet": _parquet, ".jsonl": _json_lines}
