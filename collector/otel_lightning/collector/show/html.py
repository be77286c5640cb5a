"""A rollout as a piece of HTML for a notebook.

The elements are built as a tree, which escapes every text and attribute when it is written.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any
from xml.etree.ElementTree import Element, SubElement, tostring

from otel_lightning.collector.show.conversation import arguments_of, text_or_json
from otel_lightning.collector.show.facts import Judgement, Retrieval, Tool, seconds
from otel_lightning.collector.store.print_rows import printable
from otel_lightning.collector.terminal.quantities import number_of, significant

if TYPE_CHECKING:  # `Rollout` shows itself in a notebook by this module
    from otel_lightning.collector.show.rollout import Rollout, Step

STEPS = 100
"""Number of steps that a notebook shows; a longer rollout keeps its first and last ones."""
TEXT = "margin:0;white-space:pre-wrap;overflow-wrap:anywhere;font-family:inherit"
FADED = "opacity:.65"


def as_html(rollout: "Rollout") -> str:
    """Return a rollout as HTML: a line about the whole, and each step in a fold."""
    root = Element("div", {"style": "max-width:60rem;line-height:1.4"})
    _summary(root, rollout)
    steps = rollout.steps
    left_out = max(len(steps) - STEPS, 0)
    shown_steps = [*steps[: STEPS // 2], *steps[-STEPS // 2 :]] if left_out else steps
    for number, step in enumerate(shown_steps):
        if left_out and number == STEPS // 2:
            _text(root, f"… {number_of(left_out, 'step is', 'steps are')} left out …", FADED)
        _step(root, step)
    for retrieval in rollout.retrievals:
        _retrieval(root, retrieval)
    for tool in rollout.tools:
        _tool(root, tool)
    return tostring(root, encoding="unicode", method="html")


def _summary(root: Element, rollout: "Rollout") -> None:
    head = SubElement(root, "div")
    SubElement(head, "b").text = _safe(rollout.rollout_id)
    facts = [
        rollout.task_id,
        rollout.agent_name or rollout.service_name,
        number_of(rollout.llm_calls, "call"),
        number_of(rollout.tool_calls, "tool"),
        number_of(rollout.errors, "error") if rollout.errors else None,
        seconds(rollout.seconds),
        rollout.outcome,
        None if rollout.final_reward is None else f"reward {significant(rollout.final_reward)}",
        rollout.split,
    ]
    _line(head, facts)
    if rollout.excluded:
        _text(root, f"No transitions: {rollout.excluded}", FADED)
    _bars(root, rollout.advantages)
    _judgements(root, rollout.rewards)


def _bars(root: Element, values: Sequence[float | None]) -> None:
    """Draw the advantage of each step: orange above 0, blue below, with the number as a title."""
    known = [abs(value) for value in values if value is not None]
    if not known:
        return
    # The picture is 40 high with its zero line at 20: a bar has 18, and a margin of 2.
    scale = 18 / max(*known, 1e-12)
    width = max(2, min(12, 600 // len(values)))
    box = {"width": str(width * len(values)), "height": "40", "role": "img"}
    picture = SubElement(root, "svg", box)
    SubElement(picture, "title").text = "advantage of each step"
    for number, value in enumerate(values):
        if value is None:
            continue
        height = max(abs(value) * scale, 1)
        bar = SubElement(picture, "rect", {
            "x": str(number * width), "width": str(width - 1), "height": f"{height:.1f}",
            "y": f"{20 - height if value >= 0 else 20:.1f}",
            "fill": "#d97706" if value >= 0 else "#2563eb",
        })  # fmt: skip
        SubElement(bar, "title").text = f"step {number}: {value:+.3f}"


def _step(root: Element, step: "Step") -> None:
    fold = SubElement(root, "details", {"open": "open"})
    head = SubElement(fold, "summary")
    SubElement(head, "b").text = f"step {step.step}"
    tokens = None
    if step.input_tokens is not None or step.output_tokens is not None:
        tokens = f"{step.input_tokens} → {step.output_tokens} tokens"
    credit = step.credit
    facts = [
        step.agent_name,
        step.model,
        tokens,
        seconds(step.seconds),
        f"arm {step.arm}" if step.arm else None,
        f"reward {significant(credit.reward)}" if credit and credit.reward is not None else None,
        f"advantage {credit.advantage:+.2f}" if credit and credit.advantage is not None else None,
    ]
    _line(head, facts)
    body = SubElement(fold, "div", {"style": "margin:.2rem 0 .6rem 1.2rem"})
    if step.earlier_messages:
        _text(body, f"… {number_of(step.earlier_messages, 'earlier message')}", FADED)
    for retrieval in step.retrievals:
        _retrieval(body, retrieval)
    for message in (*step.new_messages, *step.answer):
        _message(body, message)
    for tool in step.tools:
        _tool(body, tool)
    if step.error_type:
        _text(body, f"failed: {step.error_type} {step.error_message or ''}", "font-weight:bold")
    _judgements(body, step.rewards)


def _message(root: Element, message: dict[str, Any]) -> None:
    role = str(message.get("role") or "assistant")
    for part in message.get("parts") or ():
        kind = part.get("type")
        if kind == "tool_call":
            _add_message(root, "asks for", f"{part.get('name')} {text_or_json(arguments_of(part))}")
        elif kind == "tool_call_response":
            _add_message(root, "tool", text_or_json(part.get("response")))
        elif kind in ("text", "reasoning"):
            _add_message(
                root, role if kind == "text" else "reasoning", text_or_json(part.get("content"))
            )
        else:
            _add_message(root, role, f"[{part.get('modality') or kind}]")


def _tool(root: Element, tool: Tool) -> None:
    result = tool.error_type if tool.result is None else text_or_json(tool.result)
    took = f" ({seconds(tool.seconds)})" if tool.seconds is not None else ""
    _add_message(root, "ran", f"{tool.name} {text_or_json(tool.arguments)}\n→ {result}{took}")


def _retrieval(root: Element, retrieval: Retrieval) -> None:
    result = retrieval.error_type or number_of(len(retrieval.documents), "document")
    lines = [f"{retrieval.query or ''} → {result}"]
    for document in retrieval.documents:
        score = document.get("score")
        text = text_or_json(document.get("content") or document.get("id") or document)
        lines.append(text if score is None else f"{significant(score)}  {text}")
    _add_message(root, retrieval.kind or "retriever", "\n".join(lines))


def _judgements(root: Element, rewards: Iterable[Judgement]) -> None:
    for reward in rewards:
        value = "" if reward.value is None else significant(reward.value)
        text = f"{reward.name} {value} {reward.label or ''} ({reward.source})"
        _add_message(root, "reward", f"{text} {reward.explanation or ''}".strip())


def _add_message(root: Element, role: str, text: str) -> None:
    row = SubElement(root, "div", {"style": "display:flex;gap:.8rem"})
    SubElement(row, "span", {"style": f"flex:0 0 5.5rem;{FADED}"}).text = _safe(role)
    block = SubElement(row, "pre", {"style": TEXT, "dir": "auto"})
    # By line, because `_safe` would escape the line breaks too.
    block.text = "\n".join(map(_safe, text.split("\n")))


def _text(root: Element, text: str, style: str) -> None:
    SubElement(root, "div", {"style": style}).text = _safe(text)


def _line(root: Element, facts: Iterable[str | None]) -> None:
    SubElement(root, "span").text = "".join(f" · {_safe(fact)}" for fact in facts if fact)


def _safe(text: str) -> str:
    return printable(text.replace("\t", "    "))
