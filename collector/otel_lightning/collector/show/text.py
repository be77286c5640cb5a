"""A rollout as text for a terminal or a pipe.

Everything that a model, a tool or a sender wrote is untrusted: its control characters could move
the cursor, change the title or hide text. They are escaped before anything is styled.
"""

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, NamedTuple

import click

from otel_lightning.collector.show.conversation import arguments_of, parts_of, text_or_json
from otel_lightning.collector.show.facts import Credit, Judgement, Retrieval, Tool, seconds
from otel_lightning.collector.show.rollout import Rollout, Step
from otel_lightning.collector.store.print_rows import printable
from otel_lightning.collector.terminal.quantities import number_of, significant

BARS = "▁▂▃▄▅▆▇█"
INDENT, ROLE, LABEL = 3, 11, 20
NARROWEST = 40
LINES_OF_A_PART = 30
"""Longer texts are cut unless everything is asked for."""


class TextStyle(NamedTuple):
    """How to print."""

    width: int = 100
    in_color: bool = False
    cut: bool = True
    """Whether to cut long texts."""


def as_text(rollout: Rollout, style: TextStyle) -> str:
    """Print a rollout: a line about the whole, then each step."""
    lines = [*header(rollout, style)]
    for step in rollout.steps:
        lines += ["", *step_lines(step, style)]
    for retrieval in rollout.retrievals:
        lines += ["", *_retrieval(retrieval, style)]
    for tool in rollout.tools:
        lines += ["", *_tool(tool, style)]
    return "\n".join(lines)


def header(rollout: Rollout, style: TextStyle) -> Iterator[str]:
    """Yield the lines about the whole rollout."""
    facts = [
        _styled("rollout ", style, dim=True) + _styled(rollout.rollout_id, style, bold=True),
        printable(rollout.task_id or ""),
        printable(rollout.agent_name or rollout.service_name or ""),
        number_of(rollout.llm_calls, "call"),
        number_of(rollout.tool_calls, "tool") if rollout.tool_calls else "",
        _styled(number_of(rollout.errors, "error"), style, fg="yellow") if rollout.errors else "",
        seconds(rollout.seconds),
        printable(rollout.outcome),
        _return(rollout),
        printable(rollout.split or ""),
        _when(rollout.start_ns),
    ]
    yield from _flow(filter(None, facts), style)
    if rollout.arms:
        yield f"arms      {'  '.join(map(printable, rollout.arms))}"
    known = [value for value in rollout.advantages if value is not None]
    if known:
        least, most = min(known), max(known)
        bars = strip(rollout.advantages, style.width - 32)
        yield f"advantage {bars}  {least:+.2f} to {most:+.2f}"
    elif rollout.excluded:
        yield _styled(f"no transitions: {rollout.excluded}", style, dim=True)
    for reward in rollout.rewards:
        yield f"reward    {_judgement(reward)}"


def step_lines(step: Step, style: TextStyle) -> Iterator[str]:
    """Yield the lines of one step: facts, new messages, answer, tools, credit."""
    yield _spread(_facts(step), _credit(step.credit, style), style)
    if step.earlier_messages:
        yield _styled(
            f"   … {number_of(step.earlier_messages, 'earlier message')} (--all)", style, dim=True
        )
    if step.content not in (None, "full"):
        yield _styled(f"   content: {step.content}", style, dim=True)
    for retrieval in step.retrievals:
        yield from _retrieval(retrieval, style)
    for message in step.new_messages:
        yield from _message(message, style)
    for message in step.answer:
        yield from _message(message, style, is_answer=True)
    for call in _unmatched(step):
        yield from _request(call.get("name"), arguments_of(call), style)
    for tool in step.tools:
        yield from _tool(tool, style)
    if step.error_type:
        yield from _block("failed", f"{step.error_type} {step.error_message or ''}", style)
    elif step.finish_reason in ("length", "content_filter"):
        yield from _block("cut off", step.finish_reason, style)
    for reward in step.rewards:
        yield f"   reward  {_judgement(reward)}"


def strip(values: Sequence[float | None], width: int) -> str:
    """Draw values as a bar each; if there are too many, a bar is the value farthest from 0.

    Example:
        >>> strip([0.0, 0.5, None, 1.0], 10)
        '▁▅·█'
    """
    cells = list(values)
    most = max(width, 10)
    if len(cells) > most:
        # Bounds of `most` groups whose sizes differ by at most 1.
        bounds = [len(cells) * n // most for n in range(most + 1)]
        groups = (cells[start:end] for start, end in pairwise(bounds))
        cells = [_farthest(group) for group in groups]
    known = [value for value in cells if value is not None]
    if not known:
        return ""
    low, high = min(known), max(known)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join("·" if v is None else BARS[round((v - low) * scale)] for v in cells)


def _farthest(values: Iterable[float | None]) -> float | None:
    return max((v for v in values if v is not None), key=abs, default=None)


def _facts(step: Step) -> str:
    tokens = f"{_number(step.input_tokens)}→{_number(step.output_tokens)} tok"
    has_tokens = step.input_tokens is not None or step.output_tokens is not None
    arm = f"arm {step.arm}" if step.arm else ""
    if arm and step.propensity is not None:
        arm += f" p={step.propensity:.2f}"
    logprob = f"logprob {step.logprob_mean:.2f}" if step.logprob_mean is not None else ""
    agent = step.agent_name or ""
    facts = [str(step.step), agent, step.model or "", tokens if has_tokens else "",
             seconds(step.seconds), arm, logprob]  # fmt: skip
    return printable("  ".join(fact for fact in facts if fact))


def _credit(credit: Credit | None, style: TextStyle) -> str:
    if credit is None:
        return ""
    facts = []
    if credit.reward is not None:
        facts.append(f"reward {significant(credit.reward)}")
    if credit.advantage is not None:
        color = "bright_blue" if credit.advantage < 0 else "yellow"
        facts.append(_styled(f"adv {credit.advantage:+.2f}", style, fg=color, bold=True))
    return "   ".join(facts)


def _message(
    message: dict[str, Any], style: TextStyle, *, is_answer: bool = False
) -> Iterator[str]:
    role = message.get("role") or "assistant"
    for part in message.get("parts") or ():
        kind = part.get("type")
        if kind == "tool_call":
            if not is_answer:
                yield from _request(part.get("name"), arguments_of(part), style)
        elif kind == "tool_call_response":
            yield from _block("tool", text_or_json(part.get("response")), style)
        elif kind == "text":
            yield from _block(role, text_or_json(part.get("content")), style)
        elif kind == "reasoning":
            yield from _block("reasoning", text_or_json(part.get("content")), style, dim=True)
        else:
            yield from _block(role, f"[{part.get('modality') or kind}]", style, dim=True)


def _unmatched(step: Step) -> list[dict[str, Any]]:
    """Return the tool requests without a known execution."""
    ran = {tool.tool_call_id for tool in step.tools}
    # A tool's span may lack the id of its request. As many tools as requests mean that each one
    # ran.
    if len(step.tools) >= len(requests := parts_of(step.answer, "tool_call")):
        return []
    return [dict(part) for part in requests if part.get("id") not in ran]


def _retrieval(retrieval: Retrieval, style: TextStyle) -> Iterator[str]:
    """Yield the query, and a line for the beginning of each document with its score."""
    failed = f"failed: {retrieval.error_type}" if retrieval.error_type else ""
    result = failed or number_of(len(retrieval.documents), "document")
    query = f"{retrieval.query} → " if retrieval.query else ""
    lines = list(_block(retrieval.kind or "retriever", f"{query}{result}", style))
    yield _spread(lines[0], seconds(retrieval.seconds), style)
    yield from lines[1:]
    for document in retrieval.documents:
        score = document.get("score")
        mark = "" if score is None else f"{significant(score)}  "
        text = text_or_json(document.get("content") or document.get("id") or document)
        if style.cut:
            text = textwrap.shorten(text, max(style.width - INDENT - ROLE - len(mark), NARROWEST))
        yield from _block("", mark + text, style)


def _tool(tool: Tool, style: TextStyle) -> Iterator[str]:
    yield from _request(tool.name, tool.arguments, style)
    mark = "" if tool.error_type is None and not tool.told_error else "failed: "
    result = tool.error_type if tool.result is None else text_or_json(tool.result)
    if tool.result is not None and tool.error_type:
        mark = f"failed ({tool.error_type}): "
    lines = list(_block("←", f"{mark}{result or ''}", style))
    yield _spread(lines[0], seconds(tool.seconds), style)
    yield from lines[1:]


def _request(name: Any, arguments: Any, style: TextStyle) -> Iterator[str]:
    yield from _block("→", f"{name} {text_or_json(arguments)}", style)


def _block(label: str, text: str, style: TextStyle, *, dim: bool = False) -> Iterator[str]:
    """Yield a text in wrapped lines behind its label; control characters are escaped."""
    label = printable(label)[:LABEL]
    arrow = label in ("→", "←")
    # Every label has the width of a column; an arrow is followed by its text at once.
    first = " " * INDENT + (f"{label} " if arrow else f"{label:<{ROLE - 1}} ")
    rest = " " * len(first)
    width = max(style.width - len(first), NARROWEST)
    lines = [part for line in text.split("\n") for part in _wrapped(_safe_line(line), width)]
    if style.cut and len(lines) > LINES_OF_A_PART:
        left = len(lines) - LINES_OF_A_PART
        lines = [*lines[:LINES_OF_A_PART], f"… {number_of(left, 'more line')} (--all)"]
    heading = _styled(label, style, bold=True) if not dim else _styled(label, style, dim=True)
    for number, line in enumerate(lines):
        styled = _styled(line, style, dim=True) if dim else line
        yield (first.replace(label, heading, 1) if number == 0 else rest) + styled


def _wrapped(line: str, width: int) -> list[str]:
    return textwrap.wrap(line, width, drop_whitespace=False, replace_whitespace=False) or [""]


def _safe_line(text: str) -> str:
    return printable(text.rstrip("\r").replace("\t", "    "))


def _judgement(reward: Judgement) -> str:
    value = "" if reward.value is None else significant(reward.value)
    words = [
        value,
        reward.label or "",
        "←",
        reward.name,
        f"({reward.source})" if reward.source else "",
        _when(reward.time_ns),
    ]
    why = f"  {reward.explanation}" if reward.explanation else ""
    return printable(" ".join(word for word in words if word) + why.replace("\n", " "))


def _return(rollout: Rollout) -> str:
    earned = next((s.credit.return_to_go for s in rollout.steps if s.step == 0 and s.credit), None)
    if earned is not None:
        return f"return {significant(earned)}"
    return "" if rollout.final_reward is None else f"reward {significant(rollout.final_reward)}"


def _spread(left: str, right: str, style: TextStyle) -> str:
    """Put a text at the right end of a line, if there is room."""
    if not right:
        return left
    # Codes for colours have no width on a terminal, so they are not counted.
    room = style.width - len(click.unstyle(left)) - len(click.unstyle(right))
    return f"{left}{' ' * max(room, 2)}{right}"


def _flow(facts: Iterable[str], style: TextStyle) -> Iterator[str]:
    line = ""
    for fact in facts:
        joined = f"{line}  {fact}" if line else fact
        if line and len(click.unstyle(joined)) > style.width:
            yield line
            line = f"  {fact}"
        else:
            line = joined
    yield line


def _styled(text: str, style: TextStyle, **how: Any) -> str:
    text = printable(text)
    return click.style(text, **how) if style.in_color else text


def _number(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"


def _when(time_ns: int | None) -> str:
    if not time_ns:
        return ""
    return datetime.fromtimestamp(time_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S")
