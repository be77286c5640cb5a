"""A policy with features through a running ingester: its propensities are what was served."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from openfeature import api
from openfeature.contrib.provider.flagd import FlagdProvider
from openfeature.contrib.provider.flagd.config import ResolverType
from openfeature.evaluation_context import EvaluationContext
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from support.running import cli as ingest
from support.running import start
from support.spans import chat, text_message

from otel_lightning.collector.store import open_store
from otel_lightning.instrumentation import arms
from otel_lightning.learner.cli import cli
from otel_lightning.learner.policy.logged.choices import read_choices
from otel_lightning.learner.policy.logged.window import Window
from otel_lightning.learner.policy.serving import flag_rules
from otel_lightning.learner.policy.serving.versions import known_versions

if TYPE_CHECKING:
    from conftest import Traces

KEY, COUNT = "support-prompt", 600
ARMS = ("brief", "careful")
TEXT = """{"flags": {"support-prompt": {"state": "ENABLED",
  "variants": {"brief": "Be brief.", "careful": "Be careful."}, "defaultVariant": "brief",
  "targeting": {"fractional": [["brief", 1], ["careful", 1]]}}}}
"""


def promoted(traces: "Traces", folder: Path) -> Path:
    """Learn and promote a policy that serves 'careful' to refunds; return the flag file."""
    for i in range(400):
        refund, arm = i % 2 == 0, ARMS[i % 4 > 1]
        messages = [text_message("user", "I want a refund" if refund else "Where is my order?")]
        traces.call(f"r{i}", input_messages=json.dumps(messages))
        traces.task(f"r{i}", f"t{i}")
        traces.arm(f"r{i}", arm, 0.5)
        traces.reward(f"r{i}", float((arm == "careful") == refund))
    flags, features = folder / "flags.json", folder / "features.toml"
    flags.write_text(TEXT)
    features.write_text("[features]\nrefund = \"input ILIKE '%refund%'\"\n")
    words = ["policy", "--store", traces.store(), "--key", KEY, "--flags", str(flags)]
    more = ["--features", str(features), "--exploration", "0.5", "--promote"]
    assert CliRunner().invoke(cli, [*words, *more], catch_exceptions=False).exit_code == 0
    return flags


@contextmanager
def openfeature(flags: Path) -> Iterator[api.OpenFeatureClient]:
    provider = FlagdProvider(resolver_type=ResolverType.FILE, offline_flag_source_path=str(flags))
    api.set_provider_and_wait(provider)
    unregister = arms.register()
    try:
        yield api.get_client()
    finally:
        unregister()
        api.shutdown()
        api.clear_providers()


def work(flags: Path, http: str) -> None:
    """Answer questions under tracing; the prompt of each follows its context."""
    provider = TracerProvider()
    exporter = OTLPSpanExporter(endpoint=f"http://{http}/v1/traces")
    provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=2 * COUNT))
    tracer = provider.get_tracer("agent")
    with openfeature(flags) as client:
        for i in range(COUNT):
            refund = i % 2 == 0
            request = "I want a refund" if refund else "Where is it?"
            question = text_message("user", f"{request} {i}")
            more = {"lightning.rollout.id": f"n{i}", "gen_ai.response.finish_reasons": ["stop"]}
            answer = text_message("assistant", "ok") | {"finish_reason": "stop"}
            attributes = chat([question], answer, more)
            texts = {k: v if isinstance(v, str) else json.dumps(v) for k, v in attributes.items()}
            with tracer.start_as_current_span("chat", attributes=texts) as span:
                client.get_string_value(KEY, "", EvaluationContext(f"n{i}", {"refund": refund}))
                name, score = "gen_ai.evaluation.name", "gen_ai.evaluation.score.value"
                span.add_event("gen_ai.evaluation.result", {name: "task_success", score: i % 3 / 2})
    provider.shutdown()


@pytest.mark.slow
def test_served_frequencies_are_the_propensities_that_learning_uses(
    traces: "Traces", tmp_path: Path
) -> None:
    flags = promoted(traces, tmp_path)
    ingester = start(traces.path)
    try:
        work(flags, ingester.http)
        assert ingest("derive", "--store", str(ingester.store)).returncode == 0
    finally:
        ingester.stop()
    with open_store(traces.path) as store:
        logged = read_choices(store, Window(KEY, missing="drop"), known_versions(store, KEY))
    rows = [row for row in logged.rows.iter_rows(named=True) if row["rollout_id"].startswith("n")]
    assert len(rows) == COUNT
    assert logged.sources["version"] == COUNT
    targeting = json.loads(flags.read_text())["flags"][KEY]["targeting"]
    for refund in (True, False):
        shares = flag_rules.shares_of_cell(targeting, {"refund": refund})
        mine = [row for row in rows if (int(row["rollout_id"][1:]) % 2 == 0) == refund]
        for row in mine:
            assert row["propensity"] == pytest.approx(shares[row["arm"]])
        served = Counter(row["arm"] for row in mine)
        expected = {arm: len(mine) * share for arm, share in shares.items()}
        chi_square = sum((served[arm] - n) ** 2 / n for arm, n in expected.items())
        assert chi_square < 15.1  # 99.99 % quantile with one degree of freedom
