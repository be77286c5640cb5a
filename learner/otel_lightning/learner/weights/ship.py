"""Promote a fine-tuned model, roll back, and say which model is live."""

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from otel_lightning.collector.store import Store
from otel_lightning.collector.terminal.next_command import next_command
from otel_lightning.learner.errors import DataError, RefusedError
from otel_lightning.learner.model_folder import fingerprint
from otel_lightning.learner.named_sql import read
from otel_lightning.learner.promotions import Row, standing_promotions
from otel_lightning.learner.weights import pointer
from otel_lightning.learner.weights.pointer import PointerChange

GATE_FILE = "gate.json"
BY_RUNNING, BY_LOGS = "by running", "by logs"


@dataclass(frozen=True, slots=True)
class Judgement:
    """A gate's verdict on a model."""

    gate: str
    """`by running` or `by logs`."""
    against: Path | None
    """The model that it was compared with; None if the gate did not record it."""
    refusals: tuple[str, ...]
    fingerprint: str | None = None
    """Of the model's files when it was judged; None if the gate did not record it."""
    against_fingerprint: str | None = None
    """The same of the model that it was compared with."""


def promote(
    store: Store,
    model: Path,
    live: Path | None = None,
    *,
    without_gate: bool = False,
    dry_run: bool = False,
) -> PointerChange:
    """Make a model the live one if a gate passed it against the model that is live now.

    The newest comparison of these files by `lightning-learn evaluate --model` decides. If there is
    none, the verdict by logs decides, which was made when the model was trained.

    Args:
        store: An open store, which records the change.
        model: Folder of the model or adapter.
        live: The pointer; None takes `live` beside the model.
        without_gate: Promote also a model that no gate passed, such as the first one.
        dry_run: Check, and change nothing.

    Raises:
        RefusedError: If no gate passed the model, or compared it with another one.
        DataError: If the folder holds no model, or `live` is no pointer.
    """
    pointer.check_model(model)
    chosen = live or model.resolve().parent / pointer.LIVE
    now = pointer.target(chosen) if dry_run else pointer.settled(store, chosen)
    if now == model.resolve():
        raise DataError(f"'{chosen}' leads to '{model}' already.")
    judgement = None if without_gate else _passed(store, model, now)
    if dry_run:
        return PointerChange(chosen, now, model.resolve(), written=False)
    runs = _trainings(store, model)
    run_id = runs[-1]["run_id"] if runs else None
    return pointer.change(
        store, chosen, model, run_id=run_id, gate=judgement.gate if judgement else None
    )


def roll_back(store: Store, live: Path | None = None, *, dry_run: bool = False) -> PointerChange:
    """Make the model live again that was live before the last promotion that still holds.

    Args:
        store: An open store.
        live: The pointer; None takes the one that was changed last.
        dry_run: Check, and change nothing.

    Raises:
        DataError: If there is no such promotion, the model before it is gone, or the pointer was
            moved by hand since.
    """
    chosen = live or _last_pointer(store)
    now = pointer.settled(store, chosen)
    standing = standing_promotions(pointer.changes_of(store, chosen))
    if not standing or standing[-1]["before"] is None:
        raise DataError(f"No model was live at '{chosen}' before: there is nothing to go back to.")
    last = standing[-1]
    model = Path(last["before"])
    if now != Path(last["after"]):
        raise DataError(
            f"'{chosen}' leads to '{now}', but '{last['after']}' was promoted last: somebody moved "
            "it. Promote the model that you want."
        )
    pointer.check_model(model)
    if dry_run:
        return PointerChange(chosen, now, model, written=False)
    return pointer.change(store, chosen, model, action="rollback")


def models_of(store: Store) -> list[Row]:
    """List the fine-tuned models of a store, oldest first.

    Returns:
        Rows with `run_id`, `algorithm`, `folder`, `outcome`, `gain`, `lower`, `exists`, and `live`,
        the pointers that lead to the model.
    """
    pointers = {row["live"] for row in pointer.changes_of(store, None)}
    targets = {name: Path(name).resolve() for name in pointers if Path(name).is_symlink()}
    models = []
    for row in _runs(store):
        if row["command"] != "weights":
            continue
        folder = Path(row["artifact"]).resolve()
        gate = row["gate"] or {}
        models.append(
            {
                "run_id": row["run_id"],
                "algorithm": row["config"].get("algorithm"),
                "folder": row["artifact"],
                "outcome": row["outcome"],
                "gain": gate.get("gain"),
                "lower": gate.get("lower"),
                "exists": folder.exists(),
                "live": sorted(name for name, target in targets.items() if target == folder),
            }
        )
    return models


def _passed(store: Store, model: Path, live: Path | None) -> Judgement:
    """Return the judgement that passed a model against the live one, or refuse."""
    judgement, newest = _judged(store, model)
    if judgement is None:
        reason = f"it has no {GATE_FILE}"
        if newest is not None:
            reason = f"its files have changed since the gate {newest.gate} judged it"
        raise RefusedError(
            f"No gate has judged '{model}': {reason}. Promote it with --without-gate, for example "
            "as the first one, or compare it with the live model by: "
            f"{_comparison(store, live or 'LIVE', model)}"
        )
    if judgement.refusals:
        raise RefusedError(
            f"The gate {judgement.gate} refused '{model}': {'; '.join(judgement.refusals)}."
        )
    # A gate says "better than"; it holds only for the model that it compared with.
    if live is not None and judgement.against not in (None, live):
        raise RefusedError(
            f"The gate {judgement.gate} compared '{model}' with '{judgement.against}', but "
            f"'{live}' is live now. Compare the two with: {_comparison(store, live, model)}"
        )
    judged_files = judgement.against_fingerprint
    if live is not None and judged_files is not None and fingerprint(live) != judged_files:
        raise RefusedError(
            f"The live model '{live}' has changed since the gate {judgement.gate} compared "
            f"'{model}' with it. Compare the two again with: {_comparison(store, live, model)}"
        )
    return judgement


def _judged(store: Store, model: Path) -> tuple[Judgement | None, Judgement | None]:
    """Return the newest judgement of the model's files, and the newest one of any files there."""
    newest: Judgement | None = None
    files: str | None = None
    # Running the model beats an estimate from logs of another model.
    for judgement in chain(_by_running(store, model), _by_logs(model)):
        newest = newest or judgement
        if judgement.fingerprint is None:  # recorded by an older release
            return judgement, newest
        files = files or fingerprint(model)
        if judgement.fingerprint == files:
            return judgement, newest
    return None, newest


def _comparison(store: Store, live: Path | str, model: Path) -> str:
    """Write the command that compares two models by running the agent."""
    compare = next_command("lightning-learn evaluate", store, model=live)
    return f"{compare} --model {shlex.quote(str(model))} --tasks FILE -- AGENT"


def _by_running(store: Store, model: Path) -> Iterator[Judgement]:
    """Read the comparisons of a model that `lightning-learn evaluate` recorded, newest first."""
    model_folder = str(model.resolve())
    for row in reversed(_runs(store)):
        config, gate = row["config"], row["gate"] or {}
        folders, prints = config.get("folders") or {}, config.get("fingerprints") or {}
        names = [name for name in folders if folders[name] == model_folder and name in gate]
        if row["command"] == "evaluate" and names:
            # `evaluate` compares all models with the first one that is named.
            first = config["models"][0]
            against = Path(folders[first]) if first in folders else None
            yield Judgement(
                BY_RUNNING,
                against,
                tuple(gate[names[0]]),
                fingerprint=prints.get(names[0]),
                against_fingerprint=prints.get(first),
            )


def _by_logs(model: Path) -> Iterator[Judgement]:
    """Read the verdict that `lightning-learn weights` wrote beside a model, if it is there."""
    file = model / GATE_FILE
    if not file.is_file():
        return
    try:
        gate = json.loads(file.read_text(encoding="utf-8"))
        refusals, against = tuple(gate["refusals"]), gate.get("against")
    except (ValueError, KeyError, TypeError):
        raise DataError(f"'{file}' is not what lightning-learn weights writes.") from None
    if gate.get("shuffled") is not None:
        refusals += ("it is a control, which was learned from shuffled rewards",)
    of_files = gate.get("fingerprint")
    yield Judgement(BY_LOGS, None if against is None else Path(against), refusals, of_files)


def _trainings(store: Store, model: Path) -> list[Row]:
    folder = model.resolve()
    rows = (row for row in _runs(store) if row["command"] == "weights")
    return [row for row in rows if Path(row["artifact"]).resolve() == folder]


def _runs(store: Store) -> list[Row]:
    return [
        row | {"config": json.loads(row["config"]), "gate": json.loads(row["gate"] or "null")}
        for row in read(store, __package__, "model_runs").iter_rows(named=True)
    ]


def _last_pointer(store: Store) -> Path:
    history = pointer.changes_of(store, None)
    if not history:
        raise DataError("No model was promoted, so there is nothing to go back to.")
    return Path(history[-1]["live"])
