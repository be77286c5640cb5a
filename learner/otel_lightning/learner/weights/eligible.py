"""Find the verdict of the gates on a model, and refuse a model that they do not allow."""

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
from otel_lightning.learner.promotions import Row

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
    """Fingerprint of the model's files when it was judged; None if the gate did not record it."""
    against_fingerprint: str | None = None
    """The same of the model that it was compared with."""


def check_gate(store: Store, model: Path, live: Path | None) -> Judgement:
    """Return the judgement that passed a model against the live one.

    Args:
        store: An open store.
        model: Folder of the model.
        live: Folder of the model that is live now; None if there is none.

    Raises:
        RefusedError: If no gate passed the model, or compared it with another one.
    """
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
    for row in reversed(model_runs(store)):
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


def trainings_of(store: Store, model: Path) -> list[Row]:
    """Return the runs that trained a model, oldest first."""
    folder = model.resolve()
    rows = (row for row in model_runs(store) if row["command"] == "weights")
    return [row for row in rows if Path(row["artifact"]).resolve() == folder]


def model_runs(store: Store) -> list[Row]:
    """Return the runs that trained or compared models, oldest first."""
    return [
        row | {"config": json.loads(row["config"]), "gate": json.loads(row["gate"] or "null")}
        for row in read(store, __package__, "model_runs").iter_rows(named=True)
    ]
