"""The pointer to the live model: a symbolic link that is moved atomically.

A server that loads `models/live` loads the model that was promoted last. Each change is a row of
`model_promotions`, written before the link is moved. If the process is killed between the two, the
link still leads to the former model, and the next command withdraws the row.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

from otel_lightning.collector.files.atomic import locked, make_folder_of, rename_durably
from otel_lightning.collector.store import Store, statement
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.named_sql import append, read
from otel_lightning.learner.promotions import Row
from otel_lightning.learner.runs import TIME

LIVE = "live"
"""Name of the pointer beside the models, unless another one is given."""


@dataclass(frozen=True, slots=True)
class PointerChange:
    """A change of a pointer."""

    live: Path
    before: Path | None
    """The model that was live; None if the pointer is new."""
    after: Path
    written: bool


def target(live: Path) -> Path | None:
    """Return the folder of the live model; None if there is no such pointer.

    Raises:
        DataError: If there is something else under its name.
    """
    if not live.is_symlink():
        if live.exists():
            raise DataError(
                f"'{live}' is a folder or a file, not a pointer to a model. Name another one with "
                "--live, or move it away."
            )
        return None
    return live.resolve()


def change(  # noqa: PLR0913 - what, where and why
    store: Store,
    live: Path,
    model: Path,
    *,
    action: str = "promote",
    run_id: str | None = None,
    gate: str | None = None,
) -> PointerChange:
    """Record a change of the pointer, and carry it out.

    Args:
        store: An open store.
        live: The pointer.
        model: Folder of the model that it shall lead to.
        action: `promote` or `rollback`.
        run_id: The run that made the model, if it is known.
        gate: The gate that passed: `by running`, `by logs`, or None for no gate.

    Raises:
        DataError: If the folder holds no model, or `live` is no pointer.
        OSError: If the pointer cannot be moved; then the record is withdrawn.
    """
    check_model(model)
    make_folder_of(live)
    with locked(live.parent):
        before = settled(store, live)
        if before == model.resolve():  # a loop that was killed gives the same change again
            return PointerChange(live, before, before, written=False)
        row: Row = {
            "live": name_of(live),
            "action": action,
            "run_id": run_id,
            "gate": gate,
            "before": None if before is None else str(before),
            "after": str(model.resolve()),
            "time": datetime.now(UTC).replace(tzinfo=None),
        }
        append(store, "model_promotions", pl.DataFrame([row], schema=_schema(row)))
        try:
            point(live, model)
        # Also on Ctrl-C. A process that is killed outright leaves the row to `settled`.
        except BaseException:
            _withdraw(store, row)
            raise
    return PointerChange(live, before, model.resolve(), written=True)


def settled(store: Store, live: Path) -> Path | None:
    """Return the live model, after withdrawing the record of a change that was not carried out."""
    now = target(live)
    history = changes_of(store, live)
    if history and now != Path(history[-1]["after"]):
        last = history[-1]
        before = None if last["before"] is None else Path(last["before"])
        # The link never moved. If it leads elsewhere, a person moved it, and the record is left
        # alone.
        if now == before:
            _withdraw(store, last)
    return now


def point(live: Path, model: Path) -> None:
    """Let the pointer lead to a model, atomically: a reader sees the former model or this one.

    A model in a folder beside the pointer is named relative to it, so that both can be moved or
    mounted elsewhere together.
    """
    folder, model = live.parent.resolve(), model.resolve()
    name = model.relative_to(folder) if model.is_relative_to(folder) else model
    partial = folder / f".{live.name}.partial"
    partial.unlink(missing_ok=True)
    # A link cannot be changed in place: a new one is made under another name and renamed over it.
    partial.symlink_to(name, target_is_directory=True)
    rename_durably(partial, folder / live.name)


def changes_of(store: Store, live: Path | None) -> list[Row]:
    """Read the recorded changes of a pointer, or of all pointers, oldest first."""
    changes = read(store, __package__, "model_promotions")
    return (changes if live is None else changes.filter(live=name_of(live))).to_dicts()


def name_of(live: Path) -> str:
    """Return the pointer's own absolute path, which does not follow the pointer."""
    return str(live.parent.resolve() / live.name)


def check_model(model: Path) -> None:
    """Refuse a folder that no server could load.

    Raises:
        DataError: If it has neither a model's configuration nor an adapter's.
    """
    if not any((model / name).is_file() for name in ("config.json", "adapter_config.json")):
        raise DataError(
            f"'{model}' holds no model: it has neither config.json nor adapter_config.json. Give "
            "the folder that lightning-learn weights or transformers' save_pretrained wrote."
        )


def _withdraw(store: Store, row: Row) -> None:
    values = {"live": str(row["live"]), "time": str(row["time"])}
    store.execute(statement(__package__, "withdraw_promotion", **values))


def _schema(row: Row) -> dict[str, Any]:
    return dict.fromkeys(row, pl.String()) | {"time": TIME}
