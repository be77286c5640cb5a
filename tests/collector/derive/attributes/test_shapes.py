"""What is decided once a shape must hold for every span of it."""

from hypothesis import given
from hypothesis import strategies as st
from support.spans import span

from otel_lightning.collector.derive import dialects
from otel_lightning.collector.derive.attributes import flattened
from otel_lightning.collector.derive.attributes.shapes import (
    AT_MOST,
    LONGEST_VALUE,
    Decision,
    Plans,
    Shape,
)
from otel_lightning.collector.derive.messages import one_message

KEYS = st.lists(st.sampled_from(["0", "1", "7", "10", "role", "tool", "content"]), min_size=1)
TEXTS = st.sampled_from(["", "hi", "<elided>", '"function_call"', "Text", "[]", '[{"type":"text"'])


def test_spans_of_one_shape_are_decided_alike_and_asked_about_once() -> None:
    asked = []
    decision = Decision(lambda one: asked.append(one) or "kind" in one.attributes)
    spans = [span({"kind": "a", "model": model}) for model in ("m", "n")]
    assert [decision.of(one) for one in spans] == [True, True]
    assert len(asked) == 1


def test_a_decision_by_a_value_is_made_for_each_value() -> None:
    decision = Decision(lambda one: one.attributes.get("kind") == "a" and one.name == "x")
    spans = [span({"kind": kind}, name=name) for name in ("x", "y") for kind in ("a", "b", "a")]
    assert [decision.of(one) for one in spans] == [True, False, True, False, False, False]


def test_a_decision_by_a_long_value_is_right_though_it_is_not_kept() -> None:
    decision = Decision(lambda one: one.attributes["text"].endswith("!"))
    texts = ["a" * LONGEST_VALUE + end for end in ("!", "?", "!")]
    assert [decision.of(span({"text": text})) for text in texts] == [True, False, True]


def test_a_value_that_another_value_makes_unimportant_is_still_seen() -> None:
    decision = Decision(lambda one: one.attributes["a"] == "1" and one.attributes["b"] == "1")
    pairs = [("0", "1"), ("1", "1"), ("1", "0"), ("0", "0"), ("1", "1")]
    found = [decision.of(span({"a": one, "b": other})) for one, other in pairs]
    assert found == [False, True, False, False, True]


def test_a_family_that_looks_at_a_value_reads_only_spans_with_it() -> None:
    """`openai_agents` is told by the value of a description that others may write too."""
    given = {"gen_ai.operation.name": "chat", "gen_ai.agent.description": ""}
    described = "OpenAI Agents instrumentation"
    for text in (described, "My own agent.", described):
        one = span(given | {"gen_ai.agent.description": text})
        family = next(family for family in dialects.FAMILIES if family.matches(one))
        row = dialects.read(one)
        assert row is not None
        assert row == family.reader(one)(one)


def test_a_plan_holds_for_all_objects_with_the_same_keys_in_one_order() -> None:
    made: list[tuple[str, ...]] = []
    plans = Plans(lambda keys: made.append(keys) or len(made))
    objects = [{"a": 1, "b": 2}, {"a": 3, "b": 4}, {"b": 2, "a": 1}, {"a": 5, "b": 6}]
    assert [plans[tuple(one)] for one in objects] == [1, 1, 2, 1]


def test_the_number_of_kept_plans_is_limited() -> None:
    plans = Plans(len)
    for number in range(AT_MOST + 2):
        assert plans[str(number), "b"] == 2
    assert len(plans) == 2


@given(st.lists(KEYS, max_size=8))
def test_compiled_and_plain_rebuilding_give_the_same(paths: list[list[str]]) -> None:
    attributes = {f"p.{'.'.join(path)}": str(number) for number, path in enumerate(paths)}
    attributes["q.0"] = "other"
    found = [flattened.nested(attributes, "p.") for _ in range(flattened.USES + 1)]
    assert found[1:] == found[:-1]
    tree = flattened._tree(Shape(tuple(attributes)), "p.")
    assert flattened.filled(tree, attributes) == found[0]


def test_what_is_rebuilt_is_new_each_time() -> None:
    attributes = {"p.0.role": "user"}
    for _ in range(flattened.USES + 2):
        rebuilt = flattened.nested(attributes, "p.")
        assert rebuilt == [{"role": "user"}]
        rebuilt[0]["role"] = "changed by its reader"


@given(
    st.fixed_dictionaries(
        {"content": TEXTS},
        optional={
            "role": st.sampled_from([*one_message.ROLES, "planner", ""]),
            "tool_calls": st.sampled_from([[], None, [{"id": "c", "function": {"name": "f"}}]]),
            "tool_call_id": st.sampled_from(["", "c"]),
            "id": st.just("i"),
            "type": st.sampled_from(["human", "message", "function_call_output"]),
            "finish_reason": st.just("stop"),
            "reasoning": st.just("because"),
            "additional_kwargs": st.just({}),
        },
    )
)
def test_plain_messages_read_at_once_are_those_read_piece_by_piece(value: dict) -> None:
    at_once = one_message.plain_text(value)
    if at_once is not None:
        piece_by_piece = one_message._split(
            one_message._read_mapping(one_message._unwrapped(value))
        )
        assert [at_once] == piece_by_piece
