"""The model card of a fine-tuned model, made from its run."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from otel_lightning.collector.terminal.quantities import decimal
from otel_lightning.learner.runs import to_json

UNDECLARED = "not declared by the base model"


@dataclass(frozen=True, slots=True)
class Card:
    """The facts about a trained model that its model card states."""

    run_id: str
    config: Mapping[str, Any]
    data_fingerprint: str
    metrics: Mapping[str, Any]
    gate: Mapping[str, Any]


def model_card(card: Card) -> str:
    """Write the card in Markdown, with the head that model hubs read."""
    base = str(card.config["model"])
    licence = declared_licence(Path(base))
    verdict = "passed" if card.gate["passed"] else "refused"
    head = [
        "---",
        "library_name: " + ("peft" if card.config.get("lora") else "transformers"),
        f"base_model: {to_json(base)}",
        *([f"license: {licence}"] if licence else []),
        "tags:",
        "- otel-lightning",
        "- trl",
        f"- {card.config['algorithm']}",
        "---",
    ]
    lower, upper = (decimal(card.gate[name], "+") for name in ("lower", "upper"))
    refusals = [f"- Refused: {refusal}" for refusal in card.gate["refusals"]]
    body = [
        f"# {card.config['algorithm']} of `{Path(base).name}`",
        "",
        "Fine-tuned offline by `lightning-learn weights` on logged transitions of an agent.",
        "",
        f"- Run: `{card.run_id}`",
        f"- Base model: `{base}`",
        f"- Licence: {licence or UNDECLARED}",
        f"- Data: SHA-256 `{card.data_fingerprint}` of rollouts, steps, splits and advantages",
        f"- Gate: **{verdict}**, {card.gate['estimator']}; gain {decimal(card.gate['gain'], '+')}",
        f"- Bounds of the gain: {lower} and {upper}",
        *refusals,
        "",
        "## Metrics",
        "",
        *_table(card.metrics),
        "",
        "## Configuration",
        "",
        *_table(card.config),
    ]
    return "\n".join([*head, "", *body]) + "\n"


def declared_licence(model: Path) -> str | None:
    """Read the licence from the head of a model's own card; None if it has none."""
    card = model / "README.md"
    if not card.exists():
        return None
    lines = card.read_text(encoding="utf-8", errors="replace").splitlines()
    # The head of a model card is YAML between two lines of three dashes.
    if not lines or lines[0].strip() != "---":
        return None
    for line in lines[1:]:
        if line.strip() == "---":
            return None
        name, _, value = line.partition(":")
        if name == "license" and value.strip():
            return value.strip()
    return None


def _table(values: Mapping[str, Any]) -> list[str]:
    rows = [f"| {name} | `{to_json(value)}` |" for name, value in values.items()]
    return ["| name | value |", "|---|---|", *rows]
