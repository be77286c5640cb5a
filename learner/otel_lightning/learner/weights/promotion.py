"""Promote a fine-tuned model, roll back, and say which model is live."""

from pathlib import Path

from otel_lightning.collector.store import Store
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.promotions import Row, standing_promotions
from otel_lightning.learner.weights import pointer
from otel_lightning.learner.weights.eligible import check_gate, model_runs, trainings_of
from otel_lightning.learner.weights.pointer import PointerChange


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
    judgement = None if without_gate else check_gate(store, model, now)
    if dry_run:
        return PointerChange(chosen, now, model.resolve(), written=False)
    runs = trainings_of(store, model)
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
    if now is None:
        raise DataError(
            f"There is no pointer at '{chosen}' any more: somebody removed it. Promote the model "
            "that you want."
        )
    if now != Path(last["after"]):
        raise DataError(
            f"'{chosen}' leads to '{now}', but '{last['after']}' was promoted last: somebody moved "
            "it. Promote the model that you want."
        )
    if not model.exists():
        raise DataError(
            f"'{model}' was live before, but is gone. Put it back, or promote another model."
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
    targets = live_models(store)
    models = []
    for row in model_runs(store):
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


def live_models(store: Store) -> dict[str, Path]:
    """Return the folder of the model that each pointer leads to, also of models trained elsewhere.

    Args:
        store: An open store, which recorded the changes of the pointers.
    """
    pointers = sorted({row["live"] for row in pointer.changes_of(store, None)})
    return {name: Path(name).resolve() for name in pointers if Path(name).is_symlink()}


def _last_pointer(store: Store) -> Path:
    history = pointer.changes_of(store, None)
    if not history:
        raise DataError("No model was promoted, so there is nothing to go back to.")
    return Path(history[-1]["live"])
