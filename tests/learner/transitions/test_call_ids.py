"""Runs that differ in the ids of tool calls only: providers draw these at random.

A later call's input holds the ids of the tool calls before it. Two runs of one task were in the
same states all the same, which credit, de-duplication and pairs have to see.
"""

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from support.call_ids import Recording, once_more, recordings

from otel_lightning.collector.load.batches import Request, load
from otel_lightning.collector.load.from_files import derive_all
from otel_lightning.collector.store import open_store
from otel_lightning.learner.chat import CARRIED
from otel_lightning.learner.cli import cli
from otel_lightning.learner.named_sql import read
from otel_lightning.learner.transitions.make import Settings, make_transitions
from otel_lightning.learner.weights.algorithms import rft
from otel_lightning.learner.weights.examples import tokenize

if TYPE_CHECKING:
    from conftest import Traces

NOW = 1_790_000_000 * 10**9
DIALECTS = (
    "traceloop_openai/tool",
    "openinference_openai/tool",
    "openinference_anthropic/tool",
    "openlit/tool",
    "mlflow/tool",
    "strands/tool",
    "js_vercel_ai_7/tool",
)
"""Recordings of one task: a call that asks for two tools, and one that reads their results."""


@pytest.fixture(params=DIALECTS)
def recording(request: pytest.FixtureRequest) -> Recording:
    return next(one for one in recordings() if one.name == request.param)


@pytest.fixture(params=[name for name in DIALECTS if name != "openlit/tool"])
def whole(request: pytest.FixtureRequest) -> Recording:
    """One from which all calls are learned: OpenLIT leaves tool calls out of what is read later."""
    return next(one for one in recordings() if one.name == request.param)


def received(traces: "Traces", *runs: bytes) -> list[str]:
    """Store and derive runs of one task, one after the other; return their rollouts."""
    rollouts: list[str] = []
    with open_store(traces.path) as store:
        for number, run in enumerate(runs):
            sent = [Request("traces", NOW + number, run)]
            load(store, sent, dead_letters=traces.path.with_name("letters"))
            derive_all(store, traces.path)
            rows = store.rows("SELECT DISTINCT rollout_id AS id FROM llm_calls")
            (new,) = {row["id"] for row in rows}.difference(rollouts)
            rollouts.append(new)
    return rollouts


def rewarded(traces: "Traces", runs: list[bytes], rewards: list[float], credit: str) -> None:
    """Receive runs of one task, reward them, and make their transitions."""
    for rollout, reward in zip(received(traces, *runs), rewards, strict=True):
        traces.reward(rollout, reward)
        traces.task(rollout, "one")
    make_transitions(traces.store(), Settings(credit=credit, held_out=0.0))


def ended_otherwise(recording: Recording, seed: int) -> tuple[bytes, str, str]:
    """Return another run whose last answer is another one, with both answers."""
    said: str = recording.truth["llm_calls"][-1]["output_messages"][-1]["content"]
    other = said.swapcase()
    run = once_more(recording, seed)
    assert said.encode() in run
    return run.replace(said.encode(), other.encode()), said, other


def test_later_calls_are_the_same_state_and_have_an_advantage(
    recording: Recording, traces: "Traces"
) -> None:
    rewarded(traces, [once_more(recording, n) for n in (1, 2)], [1.0, 0.0], "anchor_state")
    asked = (
        "SELECT state_hash, messages::VARCHAR AS read, advantage FROM transitions WHERE step = 1"
    )
    one, other = traces.ask(asked)
    assert one["read"] != other["read"]  # the ids of the tool calls
    assert one["state_hash"] == other["state_hash"]
    assert sorted((one["advantage"], other["advantage"])) == [-1.0, 1.0]


def test_an_answer_that_was_given_twice_is_learned_once_even_if_the_template_writes_ids(
    whole: Recording, traces: "Traces", tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = tokenizer.chat_template.replace("<call> ", "<call> {{ call.id | list | join(' ') }} ")
    assert written != tokenizer.chat_template
    monkeypatch.setattr(tokenizer, "chat_template", written)
    rewarded(traces, [once_more(whole, n) for n in (1, 2, 3)], [1.0, 1.0, 0.0], "group")
    with open_store(traces.path) as store:
        package = "otel_lightning.learner.weights"
        rows = read(store, package, "completions", carried=CARRIED)
    examples = tokenize(rows, tokenizer)
    assert len(examples.examples) == 6
    kept = rft.rows(examples.examples, rft.Settings())
    assert len(kept) == 2  # the call that asks for tools, and the one that reads their results


def test_pairs_are_of_different_answers_to_the_same_state(
    whole: Recording, traces: "Traces"
) -> None:
    worse, said, other = ended_otherwise(whole, 3)
    runs = [once_more(whole, 1), once_more(whole, 2), worse]
    rewarded(traces, runs, [1.0, 1.0, 0.0], "group")
    output = traces.path.with_name("pairs.jsonl")
    told = ["export", "--store", str(traces.path), "--form", "trl-dpo", "--output", str(output)]
    result = CliRunner().invoke(cli, told)
    assert result.exit_code == 0, result.output
    (pair,) = map(json.loads, output.read_text().splitlines())
    assert [pair[side][0]["content"] for side in ("chosen", "rejected")] == [said, other]
