"""Recorded captures of real instrumentations against what the provider and the tools really did.

Each capture is OTLP as an exporter sent it, with a truth file that was written by the provider and
by the tools, never from spans. `CAPTURES=folder` runs this over another folder of captures.
"""

import os
import random
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from support.captures import Capture, load
from support.dialects_page import PAGE, written
from support.facts import VERDICTS, derived_of, facts_of
from support.spans import trace_keys

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.dialects import FAMILIES
from otel_lightning.collector.derive.rows import Log, Span

CAPTURES = Path(os.environ.get("CAPTURES", Path(__file__).parents[2] / "data"))
TRUTHS = sorted(CAPTURES.glob("*/*.truth.json"))
CLAIMED = {family.name for family in FAMILIES}


def dialects_of(truth: Path) -> str:
    read = Counter(call.dialect for call in derived_of(truth).llm_calls)
    return "+".join(sorted(read)) or "no model calls"


def scenario(truth: Path) -> str:
    return f"{truth.parent.name}/{truth.name.removesuffix('.truth.json')}"


@pytest.mark.parametrize("truth", TRUTHS, ids=scenario)
def test_every_fact_on_the_wire_is_read_and_none_is_wrong(truth: Path) -> None:
    if not set(dialects_of(truth).split("+")) <= CLAIMED:
        pytest.skip("no reader is claimed for it")
    bad = [fact for fact in facts_of(truth) if fact.verdict in {"wrong", "missed"}]
    assert not bad, "\n".join(map(str, bad))


def test_the_table_of_facts_is_printed() -> None:
    rows: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for truth in TRUTHS:
        counted = rows[truth.parent.name, dialects_of(truth)]
        counted.update(fact.verdict for fact in facts_of(truth))
    print(f"\n{'capture':34}{'read as':26}" + "".join(f"{name:>16}" for name in VERDICTS))
    for (name, dialect), counted in sorted(rows.items()):
        print(f"{name:34}{dialect:26}" + "".join(f"{counted[v]:16}" for v in VERDICTS))
    assert rows


def test_at_least_99_percent_of_what_is_on_the_wire_is_read_right() -> None:
    counted = Counter(fact.verdict for truth in TRUTHS for fact in facts_of(truth))
    assert counted["wrong"] == 0
    assert counted["right"] >= 0.99 * (counted["right"] + counted["missed"])


def test_the_page_of_dialects_is_what_this_test_finds() -> None:
    again = "write its table with: PYTHONPATH=tests python -m support.dialects_page"
    assert PAGE.read_text() == written(), f"{PAGE.name} is not current; {again}"


@pytest.mark.parametrize("truth", TRUTHS, ids=scenario)
def test_derived_rows_do_not_depend_on_the_order_of_arrival(truth: Path) -> None:
    capture, expected = load(truth), derived_of(truth)
    for seed in range(3):
        chance = random.Random(seed)  # noqa: S311
        shuffled = chance.sample(capture.spans, len(capture.spans))
        # Those of one time keep their order: nothing else tells two turns of a user apart.
        places: dict[tuple[int, ...], float] = defaultdict(chance.random)
        logs = sorted(capture.logs, key=lambda log: places[log.order])
        assert derive(shuffled, logs) == expected


@pytest.mark.parametrize("truth", TRUTHS, ids=scenario)
def test_traces_of_one_rollout_are_tied_by_keys(truth: Path) -> None:
    capture, derived = load(truth), derived_of(truth)
    by_trace: dict[str, list[Span]] = defaultdict(list)
    for span in capture.spans:
        by_trace[span.trace_id].append(span)
    keys = {trace: trace_keys(spans, logs_of(trace, capture)) for trace, spans in by_trace.items()}
    traces: dict[str, set[str]] = defaultdict(set)
    for call in derived.llm_calls:
        if call.rollout_id:  # an embedding makes no rollout
            traces[call.rollout_id].add(call.trace_id)
    for together in traces.values():
        assert reached(min(together), keys) >= together


def logs_of(trace: str, capture: Capture) -> list[Log]:
    return [log for log in capture.logs if log.trace_id == trace]


def reached(start: str, keys: dict[str, set[str]]) -> set[str]:
    found, frontier = {start}, [start]
    while frontier:
        here = frontier.pop()
        near = {other for other in keys if keys[other] & keys[here]} - found
        found |= near
        frontier += near
    return found
