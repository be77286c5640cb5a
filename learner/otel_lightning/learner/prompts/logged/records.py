"""Records for the proposing model: input, actions, outcome and reward of a rollout."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from otel_lightning.collector.show.conversation import text_or_json
from otel_lightning.collector.store import Store
from otel_lightning.learner.named_sql import read
from otel_lightning.learner.prompts.logged.rollouts import Rollouts
from otel_lightning.learner.score.judges.conversation import Turn
from otel_lightning.learner.score.judges.presentation import LINE_BREAKS, clip
from otel_lightning.learner.score.judges.record import Selection, read_records

MAX_CHARACTERS = {"input": 500, "answer": 400, "tool_errors": 200, "explanations": 400}
"""Largest number of characters of each part of a record; longer ones lose their middle."""
# Only the turns are used here, so the text that a judge would read is kept short.
AS_TEXT = Selection(max_characters=1)


@dataclass(frozen=True, slots=True)
class Record:
    """One rollout as the proposing model sees it."""

    rollout_id: str
    line: str
    """A JSON object on one line, so that no text in it can look like another record."""
    texts: tuple[str, ...]
    """The input and the answer as shown, which a proposal must not copy."""


def make_records(store: Store, rollouts: Rollouts, chosen: Sequence[str]) -> dict[str, Record]:
    """Read the records of some rollouts.

    Args:
        store: An open store.
        rollouts: The rollouts with their rewards.
        chosen: Ids of the rollouts to show.

    Returns:
        The records by rollout id; a rollout without text has none.
    """
    rows = {row["rollout_id"]: row for row in rollouts.rows.iter_rows(named=True)}
    judged = _explanations(read(store, __package__, "explanations").iter_rows(named=True))
    errors = defaultdict(list)
    for error in read(store, __package__, "tool_errors", rollouts=chosen).iter_rows(named=True):
        result = error["result"] or ""
        errors[error["rollout_id"]].append(
            f"{error['name']}: {error['error_type']} {result}".strip()
        )
    return {
        record.rollout_id: _record(
            record.rollout_id,
            record.turns,
            rows[record.rollout_id],
            # With shuffled rewards, the explanations come from the rollout whose reward it got.
            judged[rows[record.rollout_id]["judged_as"]],
            errors[record.rollout_id],
        )
        for record in read_records(store, chosen, AS_TEXT)
    }


def _record(
    rollout: str,
    turns: Sequence[Turn],
    row: Mapping[str, Any],
    explanations: Sequence[str],
    errors: Sequence[str],
) -> Record:
    question = next((_text(turn) for turn in turns if turn.role == "user"), "")
    answers = [_text(turn) for turn in turns if turn.role == "assistant"]
    shown = {
        "input": question,
        "answer": answers[-1] if answers else "",
        "tool_errors": "\n".join(errors),
        "explanations": "\n".join(explanations),
    }
    shown = {name: clip(text, MAX_CHARACTERS[name]) for name, text in shown.items() if text}
    head = {"outcome": "failed" if row["failed"] else "succeeded", "reward": row["outcome"]}
    line = json.dumps({**head, "variant": row["arm"], **shown}, ensure_ascii=False)
    texts = tuple(shown[name] for name in ("input", "answer") if name in shown)
    return Record(rollout, line.translate(LINE_BREAKS), texts)


def _explanations(rows: Any) -> dict[str, list[str]]:
    explanations: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        if row["explanation"]:
            score = row["label"] or ("" if row["value"] is None else f"{row['value']:g}")
            explanations[row["rollout_id"]].append(f"{row['name']} {score}: {row['explanation']}")
    return explanations


def _text(turn: Turn) -> str:
    """Join the texts of a message and the tool calls that it requests."""
    parts = []
    for part in turn.parts:
        if part.get("type") == "text":
            parts.append(text_or_json(part.get("content") or ""))
        elif part.get("type") == "tool_call":
            parts.append(f"{part.get('name')}({text_or_json(part.get('arguments'))})")
    return "\n".join(parts)
