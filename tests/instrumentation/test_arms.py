"""Arms, with the OpenFeature SDK and flagd's file provider as an agent would use them."""

import asyncio
import functools
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from typing import Any

import pytest
from openfeature import api
from openfeature.contrib.provider.flagd import FlagdProvider
from openfeature.contrib.provider.flagd.config import ResolverType
from openfeature.evaluation_context import EvaluationContext
from openfeature.exception import ErrorCode
from openfeature.flag_evaluation import FlagResolutionDetails, Reason
from openfeature.provider.in_memory_provider import InMemoryFlag, InMemoryProvider
from opentelemetry.context import Context
from support.running import LIMIT_S, join

LLM = {"gen_ai.operation.name": "chat"}
PROPENSITIES = {"brief": 0.34, "careful": 0.66}
FLAGS = {
    "support-prompt": {
        "state": "ENABLED",
        "variants": {"brief": "Be brief.", "careful": "Think first."},
        "defaultVariant": "brief",
        "targeting": {"fractional": [["brief", 34], ["careful", 66]]},
        "metadata": {
            "lightning.propensity.brief": 0.34,
            "lightning.propensity.careful": 0.66,
            "lightning.policy.version": "3",
        },
    },
    "model": {
        "state": "ENABLED",
        "variants": {"small": "small-1", "large": "large-1"},
        "defaultVariant": "small",
    },
    "fallback": {
        "state": "ENABLED",
        "variants": {"on": "on", "off": "off"},
        "defaultVariant": "off",
        "targeting": {"if": [{"==": [{"var": "plan"}, "pro"]}, "on"]},
        "metadata": {"lightning.propensity.off": 0.5},
    },
    "retired": {"state": "DISABLED", "variants": {"on": "on"}, "defaultVariant": "on"},
}


def in_own_context(test: Callable[..., None]) -> Callable[..., None]:
    """Keep the arms that one test puts in force from the next."""

    @functools.wraps(test)
    def isolated(**fixtures: Any) -> None:
        copy_context().run(test, **fixtures)

    return isolated


@pytest.fixture
def flags(tmp_path: Path) -> Iterator[Any]:
    path = tmp_path / "flags.json"
    path.write_text(json.dumps({"flags": FLAGS}))
    provider = FlagdProvider(resolver_type=ResolverType.FILE, offline_flag_source_path=str(path))
    api.set_provider_and_wait(provider)
    yield api.get_client()
    api.clear_providers()


def choose(flags: Any, customer: str, key: str = "support-prompt") -> Any:
    return flags.get_string_details(key, "none", EvaluationContext(customer))


@in_own_context
def test_a_choice_made_outside_of_any_span_is_on_the_llm_spans_that_follow(
    traced: Any, flags: Any
) -> None:
    tracer = traced.provider.get_tracer("agent")
    variant = choose(flags, "customer-7").variant
    for number in (1, 2):
        tracer.start_span(f"chat {number}", attributes=LLM).end()
    expected = {
        "feature_flag.key": "support-prompt",
        "feature_flag.result.variant": variant,
        "feature_flag.result.reason": "targeting_match",
        "feature_flag.context.id": "customer-7",
        "feature_flag.provider.name": "FlagdProvider",
        "lightning.propensity": PROPENSITIES[variant],
        "lightning.policy.version": "3",
    }
    assert traced.events("chat 1") == traced.events("chat 2") == [expected]


@in_own_context
def test_propensities_match_how_often_flagd_serves_each_arm(traced: Any, flags: Any) -> None:
    tracer = traced.provider.get_tracer("agent")
    for number in range(400):
        choose(flags, f"customer-{number}")
        tracer.start_span("chat", attributes=LLM).end()
    recorded = [
        (event["feature_flag.result.variant"], event["lightning.propensity"])
        for event in traced.events("chat")
    ]
    assert set(recorded) == set(PROPENSITIES.items())
    share = recorded.count(("brief", 0.34)) / len(recorded)
    assert share == pytest.approx(0.34, abs=3 * (0.34 * 0.66 / 400) ** 0.5)


@in_own_context
def test_the_same_choice_is_on_a_span_once(traced: Any, flags: Any) -> None:
    tracer = traced.provider.get_tracer("agent")
    choose(flags, "customer-7")
    with tracer.start_as_current_span("agent run"):
        choose(flags, "customer-7")
        choose(flags, "customer-7")
    assert len(traced.events("agent run")) == 1


@in_own_context
def test_a_choice_made_inside_a_span_is_on_it_and_on_the_genai_spans_below(
    traced: Any, flags: Any
) -> None:
    tracer = traced.provider.get_tracer("agent")
    with tracer.start_as_current_span("agent run"):
        choose(flags, "customer-7")
        tracer.start_span("chat", attributes=LLM).end()
        tracer.start_span("GET").end()
    assert len(traced.events("agent run")) == 1
    assert traced.events("chat") == traced.events("agent run")
    assert traced.events("GET") == []


@in_own_context
def test_a_span_that_begins_a_trace_has_the_arms_before_it_says_what_it_is(
    traced: Any, flags: Any
) -> None:
    choose(flags, "customer-7")
    with traced.provider.get_tracer("agent").start_as_current_span("run") as span:
        span.set_attribute("gen_ai.operation.name", "invoke_agent")
    assert len(traced.events("run")) == 1


@in_own_context
def test_a_choice_of_one_request_is_on_no_span_of_the_next(traced: Any, flags: Any) -> None:
    """A worker handles them one after the other; the second calls a model before it chooses."""
    tracer = traced.provider.get_tracer("agent")
    for customer in ("customer-7", "customer-8"):
        with tracer.start_as_current_span(f"POST {customer}"):
            tracer.start_span(f"route {customer}", attributes=LLM).end()
            choose(flags, customer)
            tracer.start_span(f"chat {customer}", attributes=LLM).end()
    for name in ("POST", "chat"):
        for customer in ("customer-7", "customer-8"):
            served = traced.events(f"{name} {customer}")
            assert [event["feature_flag.context.id"] for event in served] == [customer]
    assert traced.events("route customer-8") == []


@in_own_context
def test_a_pool_of_the_next_request_gets_no_choice_of_the_one_before(
    traced: Any, flags: Any
) -> None:
    tracer = traced.provider.get_tracer("agent")

    def call(pool: ThreadPoolExecutor, name: str) -> None:
        pool.submit(tracer.start_span, name, attributes=LLM).result(timeout=LIMIT_S).end()

    with ThreadPoolExecutor(1) as pool:
        for customer in ("customer-7", "customer-8"):
            with tracer.start_as_current_span(f"POST {customer}"):
                call(pool, f"before {customer}")
                choose(flags, customer)
                call(pool, f"after {customer}")
    for customer in ("customer-7", "customer-8"):
        assert traced.events(f"before {customer}") == []
        assert len(traced.events(f"after {customer}")) == 1


@in_own_context
def test_a_choice_is_on_a_trace_that_begins_while_its_request_goes_on(
    traced: Any, flags: Any
) -> None:
    tracer = traced.provider.get_tracer("agent")
    with tracer.start_as_current_span("POST"):
        choose(flags, "customer-7")
        detached = {"context": Context(), "attributes": LLM}
        tracer.start_span("chat", **detached).end()
    assert len(traced.events("chat")) == 1
    tracer.start_span("later", **detached).end()
    assert traced.events("later") == []


@in_own_context
def test_several_flags_are_in_force_together_and_a_new_choice_replaces_the_old(
    traced: Any, flags: Any
) -> None:
    tracer = traced.provider.get_tracer("agent")
    choose(flags, "customer-7")
    choose(flags, "customer-7", key="model")
    last = choose(flags, "customer-8").variant
    tracer.start_span("chat", attributes=LLM).end()
    found = {
        event["feature_flag.key"]: (
            event["feature_flag.result.variant"],
            event["feature_flag.context.id"],
        )
        for event in traced.events("chat")
    }
    assert len(traced.events("chat")) == 2
    assert found == {"support-prompt": (last, "customer-8"), "model": ("small", "customer-7")}


@in_own_context
def test_a_flag_without_metadata_is_recorded_without_a_propensity(traced: Any, flags: Any) -> None:
    choose(flags, "customer-7", key="model")
    traced.provider.get_tracer("agent").start_span("chat", attributes=LLM).end()
    (event,) = traced.events("chat")
    assert event["feature_flag.result.reason"] == "static"
    assert {"lightning.propensity", "lightning.policy.version"}.isdisjoint(event)


@pytest.mark.parametrize("key", ["fallback", "retired", "missing"])
@in_own_context
def test_a_default_is_not_recorded_as_a_choice(traced: Any, flags: Any, key: str) -> None:
    choose(flags, "customer-7", key=key)
    traced.provider.get_tracer("agent").start_span("chat", attributes=LLM).end()
    assert traced.events("chat") == []


@in_own_context
def test_a_default_ends_the_force_of_an_earlier_choice(traced: Any, flags: Any) -> None:
    tracer = traced.provider.get_tracer("agent")
    choose(flags, "customer-7")
    flags.get_integer_details("support-prompt", 0, EvaluationContext("customer-7"))
    tracer.start_span("chat", attributes=LLM).end()
    assert traced.events("chat") == []


@pytest.mark.parametrize(
    "answer",
    [
        FlagResolutionDetails("Be brief.", reason=Reason.TARGETING_MATCH),
        FlagResolutionDetails("none", ErrorCode.GENERAL, reason=Reason.STALE, variant="brief"),
    ],
    ids=["no variant", "an error"],
)
@in_own_context
def test_an_answer_that_names_no_arm_or_an_error_is_not_recorded(
    traced: Any, answer: FlagResolutionDetails[str]
) -> None:
    class Odd(InMemoryProvider):
        def resolve_string_details(self, *_: Any, **__: Any) -> FlagResolutionDetails[str]:
            return answer

    api.set_provider_and_wait(Odd({}))
    api.get_client().get_string_details("prompt", "none")
    traced.provider.get_tracer("agent").start_span("chat", attributes=LLM).end()
    api.clear_providers()
    assert traced.events("chat") == []


@in_own_context
def test_nothing_is_recorded_without_a_provider_or_before_it_is_ready(traced: Any) -> None:
    ready = threading.Event()

    class Slow(InMemoryProvider):
        def initialize(self, evaluation_context: EvaluationContext) -> None:
            del evaluation_context
            ready.wait(LIMIT_S)

    tracer = traced.provider.get_tracer("agent")
    client = api.get_client()
    client.get_string_details("prompt", "none")
    tracer.start_span("chat", attributes=LLM).end()
    setting = threading.Thread(
        target=api.set_provider_and_wait,
        args=(Slow({"prompt": InMemoryFlag("brief", {"brief": "Be brief."})}),),
        daemon=True,
    )
    setting.start()
    client.get_string_details("prompt", "none")
    tracer.start_span("chat", attributes=LLM).end()
    assert traced.events("chat") == []
    ready.set()
    join(setting)
    client.get_string_details("prompt", "none")
    tracer.start_span("chat", attributes=LLM).end()
    assert [event["feature_flag.result.variant"] for event in traced.events("chat")] == ["brief"]
    api.clear_providers()


@in_own_context
def test_concurrent_tasks_keep_their_own_arms(traced: Any, flags: Any) -> None:
    tracer = traced.provider.get_tracer("agent")

    async def work(customer: str) -> None:
        details = await flags.get_string_details_async(
            "support-prompt", "none", EvaluationContext(customer)
        )
        await asyncio.sleep(0)
        tracer.start_span(f"{customer} {details.variant}", attributes=LLM).end()

    async def main() -> None:
        await asyncio.gather(*(work(f"customer-{number}") for number in range(20)))

    asyncio.run(main())
    spans = traced.exporter.get_finished_spans()
    assert len({span.name.split()[1] for span in spans}) == 2
    for span in spans:
        (event,) = traced.events(span.name)
        assert span.name == (
            f"{event['feature_flag.context.id']} {event['feature_flag.result.variant']}"
        )
