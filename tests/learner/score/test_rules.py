"""What a rule may be, how it is applied, and what happens when it goes wrong."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support import running

from otel_lightning.collector.store import open_store
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.score import rules

if TYPE_CHECKING:
    from conftest import Traces

Write = Callable[[str, str], str]
IMPORT = "import polars as pl\n\n\n"


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a rule to a file."""

    def written(name: str, text: str) -> str:
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return written


def apply(traces: "Traces", spec: str) -> rules.Applied:
    with open_store(traces.store(), create=False) as store:
        return rules.apply_rule(store, spec)


def grade(write: Write, body: str, *, wants: str = "rollouts") -> str:
    lines = f"def grade({wants}):\n    {body}\n"
    return write("rewards.py", IMPORT + lines) + ":grade"


def scores(traces: "Traces") -> dict[str, float]:
    rows = traces.ask("SELECT coalesce(span_id, rollout_id) AS what, value FROM scores")
    return {row["what"]: row["value"] for row in rows}


def three(traces: "Traces") -> None:
    for rollout in "abc":
        traces.call(rollout, input_tokens=ord(rollout), output_tokens=0)


def test_only_a_file_of_rules_is_a_rule() -> None:
    given = ["rewards.py:grade", "rewards.py", "a/b.sql", "c.toml", "task_success", "a:b", None]
    assert [rules.is_spec(spec) for spec in given] == [True] * 4 + [False] * 3


def test_applying_an_edited_rule_replaces_its_scores_under_a_new_fingerprint(
    traces: "Traces", write: Write
) -> None:
    three(traces)
    before = apply(traces, grade(write, "return rollouts['input_tokens'] - 97"))
    assert scores(traces) == {"a": 0, "b": 1, "c": 2}
    again = apply(traces, grade(write, "return rollouts['input_tokens'] - 97"))
    edited = apply(traces, grade(write, "return rollouts['input_tokens'] - 98"))
    assert before.source == again.source != edited.source
    assert scores(traces) == {"a": -1, "b": 0, "c": 1}


@pytest.mark.slow
def test_rules_work_while_the_ingester_holds_the_store(traces: "Traces", write: Write) -> None:
    three(traces)
    traces.reward("a", 4.0, name="clarity")
    path = Path(traces.store())
    composed = "[measures.clarity]\nweight = 1\nrange = [1, 5]\n[shaping]\nmalformed_call = -1\n"
    specs = [
        grade(write, "return rollouts['input_tokens']"),
        write("one.sql", "SELECT rollout_id, 1 AS value FROM rollouts; -- all of them"),
        write("composed.toml", composed),
    ]
    ingester = running.start(path)
    try:
        done = [apply(traces, spec) for spec in specs]
    finally:
        ingester.stop()
    assert [(one.name, one.scored) for one in done] == [("grade", 3), ("one", 3), ("composed", 1)]
    assert traces.ask("SELECT count(*) AS n FROM scores") == [{"n": 8}]


def test_rule_sees_what_was_received_and_judged_but_not_what_rules_gave(
    traces: "Traces", write: Write
) -> None:
    three(traces)
    traces.reward("a", 0.25)
    counted = grade(write, "return rollouts['rewards'].list.len()")
    for _ in range(2):
        apply(traces, counted)
        assert scores(traces) == {"a": 1, "b": 0, "c": 0}


def test_parts_that_a_function_names_are_kept_under_the_name_of_the_rule(
    traces: "Traces", write: Write
) -> None:
    traces.call("a")
    body = "return pl.DataFrame({'rollout_id': ['a'] * 2, 'name': [None, 'tone'], 'value': [1, 0]})"
    assert apply(traces, grade(write, body)).scored == 1
    rows = traces.ask("SELECT name, value FROM scores ORDER BY name")
    assert [tuple(row.values()) for row in rows] == [("grade", 1.0), ("grade.tone", 0.0)]


def test_rollouts_on_which_a_function_raises_are_left_out_and_named(
    traces: "Traces", write: Write
) -> None:
    for number in range(20):
        traces.call(f"r{number:02}", output_messages="[]" if number in {3, 17} else "[1]")
    body = (
        "import json\n"
        "    first = [json.loads(text)[0] for text in rollouts['output_messages']]\n"
        "    return pl.Series(first) * rollouts.height"
    )
    done = apply(traces, grade(write, body))
    (exclusion,) = done.left_out
    assert exclusion.ids == ("r03", "r17")
    assert exclusion.reason == "IndexError at rewards.py:6: list index out of range"
    assert str(exclusion).startswith("2 left out: IndexError at rewards.py:6")
    assert set(scores(traces).values()) == {18.0}, "the others are scored together"


def test_lazy_function_that_raises_while_it_is_collected_loses_only_that_rollout(
    traces: "Traces", write: Write
) -> None:
    three(traces)
    body = (
        "def share(counts):\n"
        "        return pl.Series([1 / (count - 98) for count in counts])\n"
        "    value = pl.col('input_tokens').map_batches(share, pl.Float64)\n"
        "    return rollouts.select('rollout_id', value=value)"
    )
    done = apply(traces, grade(write, body, wants="rollouts: pl.LazyFrame"))
    (exclusion,) = done.left_out
    assert exclusion.ids == ("b",)
    assert exclusion.reason == "ZeroDivisionError at rewards.py:6: division by zero"
    assert scores(traces) == {"a": -1, "c": 1}


def test_function_that_always_raises_is_an_error_with_its_line(
    traces: "Traces", write: Write
) -> None:
    three(traces)
    with pytest.raises(
        DataError, match=r"rewards\.py:grade: raises KeyError at rewards\.py:5: 'x'"
    ):
        apply(traces, grade(write, "return {}['x']"))
    with pytest.raises(DataError, match=r"ColumnNotFoundError at rewards\.py:5"):
        apply(traces, grade(write, "return rollouts['colour']"))
    assert scores(traces) == {}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (math.nan, "the score is NaN"),
        (math.inf, "the score is inf"),
        (None, "no score"),
        (-1e61, "the score is beyond 1e+60, which cannot be computed with"),
    ],
)
def test_score_that_is_no_number_is_left_out_and_named(
    traces: "Traces", write: Write, value: float | None, reason: str
) -> None:
    three(traces)
    spelled = "None" if value is None else f"float('{value}')"
    done = apply(traces, grade(write, f"return pl.Series([1.0, {spelled}, 0.5])"))
    assert [(one.reason, one.ids) for one in done.left_out] == [(reason, ("b",))]
    assert scores(traces) == {"a": 1.0, "c": 0.5}


def test_scores_of_what_is_not_stored_or_twice_different_are_left_out(
    traces: "Traces", write: Write
) -> None:
    three(traces)
    same, other = "('a', NULL, 1), ('a', NULL, 1)", "('b', NULL, 1), ('b', NULL, 0)"
    rows = f"{same}, {other}, ('z', NULL, 1), ('c', 'a.0', 1)"
    text = f"SELECT * FROM (VALUES {rows}) AS given(rollout_id, span_id, value)"
    done = apply(traces, write("given.sql", text))
    assert scores(traces) == {"a": 1.0}
    assert {one.reason: one.ids for one in done.left_out} == {
        "no such rollout is stored": ("z",),
        "not a call of its rollout": ("c/a.0",),
        "several different scores": ("b",),
    }


def test_function_over_calls_loses_whole_rollouts_when_it_raises(
    traces: "Traces", write: Write
) -> None:
    for step, tokens in enumerate([5, 0]):
        traces.call("a", step, output_tokens=tokens)
        traces.call("b", step, output_tokens=5)
    body = "return pl.Series([10 // tokens for tokens in calls['output_tokens']])"
    done = apply(traces, grade(write, body, wants="calls"))
    assert [one.ids for one in done.left_out] == [("a",)]
    assert scores(traces) == {"b.0": 2, "b.1": 2}
    rows = traces.ask("SELECT rollout_id, trace_id, span_id FROM rewards ORDER BY span_id")
    assert [tuple(row.values()) for row in rows] == [("b", "b", "b.0"), ("b", "b", "b.1")]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return rollouts['input_tokens'].head(2)", r"2 values for 3 rows"),
        ("return 0.5", r"returns float\. Return a polars Series"),
        (
            "return rollouts.select(score='llm_calls')",
            r"unknown column 'score'\. Known",
        ),
        ("return rollouts.select('rollout_id')", r"gives no 'value'"),
        ("return rollouts['rollout_id']", r"values of type String\. Give numbers"),
        ("return rollouts.select('rollout_id', value=None)", r"no score named 'grade'.*3 left out"),
    ],
)
def test_function_that_returns_no_scores_is_an_error_that_says_what(
    traces: "Traces", write: Write, body: str, said: str
) -> None:
    three(traces)
    with pytest.raises(DataError, match=said):
        apply(traces, grade(write, body))
    assert scores(traces) == {}


@pytest.mark.parametrize(
    ("spec", "text", "said"),
    [
        ("a.py", "", r"names no function\. Write .*a\.py:FUNCTION"),
        ("a.py:grade", "def other(rollouts): ...", r"no function 'grade'\. Its functions: other"),
        ("a.py:grade", "def grade(rows): ...", r"takes 'rows'.*'rollouts' or 'calls'"),
        ("a.py:grade", "def grade(:", r"cannot be run: SyntaxError"),
        ("a.sql", "DELETE FROM spans", r"not one SELECT"),
        ("a.sql", "SELEC 1", r"a\.sql: DuckDB says: .*SELEC"),
        ("a.sql", "SELECT nothing FROM rollouts", r"DuckDB says: .*nothing"),
        ("a.sql", "SELECT 1 AS value", r"gives no column 'rollout_id'"),
        ("a b.sql", "SELECT 1", r"rewards named 'a b'.*rename the file"),
        ("a.toml", "x = ", r"a\.toml: not TOML"),
        ("a.toml", "", r"composes nothing"),
        ("a.toml", "weights = 1", r"unknown key 'weights'\. Known: name, clamp, measures"),
        ("a.toml", "[shaping]\nlatencies = 1", r"unknown key 'shaping\.latencies'"),
        ("a.toml", "[shaping]\nsteps = 'x'", r"'shaping\.steps\.weight' is 'x'"),
        ("a.toml", "[shaping.steps]\nweight = 1\nper = 0", r"'shaping\.steps\.per' is 0"),
        ("a.toml", "clamp = [1, -1]\n[shaping]\nsteps = 1", r"'clamp' is \[1, -1\]"),
        ("a.toml", "[measures.m]\nweight = 1", r"'measures\.m\.range' is None"),
        ("a.toml", "[measures.m]\nweight = 0\nrange = [0, 1]", r"'measures\.m\.weight' is 0"),
        ("a.toml", "shaping = 1", r"'shaping' is 1\. Write a table"),
        ("a.toml", "name = 'a.b'\n[shaping]\nsteps = 1", r"rewards named 'a\.b'"),
        (
            "a.toml",
            "[shaping]\nsteps = 1\n[measures.steps]\nweight = 1\nrange = [0, 1]",
            r"'steps' is a measure and a shaping term",
        ),
    ],
)
def test_rule_that_cannot_be_one_is_an_error_that_says_what_next(
    traces: "Traces", write: Write, spec: str, text: str, said: str
) -> None:
    three(traces)
    file, colon, function = spec.partition(":")
    with pytest.raises(DataError, match=said):
        apply(traces, write(file, text) + colon + function)


def test_rule_whose_file_is_not_there_is_an_error_that_says_how_to_give_one(
    traces: "Traces", tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=r"no\.py' cannot be read.*FILE\.py:FUNCTION"):
        apply(traces, f"{tmp_path}/no.py:grade")


def test_rule_with_the_name_of_rewards_of_others_is_an_error(
    traces: "Traces", write: Write
) -> None:
    three(traces)
    traces.reward("a", 1.0, name="one", source="feedback")
    with pytest.raises(DataError, match=r"1 rewards named 'one' already, from 'feedback'"):
        apply(traces, write("one.sql", "SELECT rollout_id, 1 AS value FROM rollouts"))


COMPOSED = """
[measures.clarity]
weight = 1
range = [0, 4]
[measures.truth]
weight = 3
range = [0, 1]
"""


def test_measure_that_failed_later_leaves_the_one_before_and_calls_are_averaged(
    traces: "Traces", write: Write
) -> None:
    for step in range(2):
        traces.call("a", step)
        traces.reward("a", float(step), name="truth", span_id=f"a.{step}")
    traces.reward("a", 3.0, name="clarity")
    traces.reward("a", None, name="clarity", label="error")
    apply(traces, write("composed.toml", COMPOSED))
    assert scores_by_name(traces) == {
        "composed": 0.5,
        "composed.clarity": 0.5,  # 3 of 0 to 4 is +0.5, weight 1
        "composed.truth": 0.0,  # the mean of 0 and 1 is the middle
    }


def scores_by_name(traces: "Traces") -> dict[str, float]:
    return {row["name"]: row["value"] for row in traces.ask("SELECT name, value FROM scores")}


def test_retries_and_malformed_calls_are_counted(traces: "Traces", write: Write) -> None:
    spoken = [
        {"type": "tool_call", "name": "find", "arguments": None, "arguments_raw": '{"a": '},
        {"type": "tool_call", "name": "find", "arguments": [1], "arguments_raw": "[1]"},
        {"type": "tool_call", "name": "find", "arguments": {"a": 1}, "arguments_raw": '{"a": 1}'},
        {"type": "tool_call", "name": "ping", "arguments": None, "arguments_raw": ""},
        {"type": "text", "content": "arguments_raw"},
    ]
    output = json.dumps([{"role": "assistant", "parts": spoken}])
    traces.call("a", 0, error_type="timeout", output_messages=None, state_hash="s")
    traces.call("a", 1, output_messages=output, state_hash="s")
    traces.call("a", 2, error_type="timeout", output_messages=None)
    for arguments in ('{"a": 1}', '{"a": 1}', '{"a": 2}', None, None):
        traces.tool("a", "find", arguments=arguments)
    apply(traces, write("r.toml", "[shaping]\nretry = 1\nmalformed_call = 10\nsteps = 100\n"))
    assert scores_by_name(traces) == {
        "r.retry": 2,  # the call that timed out and was made again, the tool asked the same again
        "r.malformed_call": 20,
        "r.steps": 300,
        "r": 322,
    }


def test_shaping_counts_what_is_above_and_leaves_out_what_is_unknown(
    traces: "Traces", write: Write
) -> None:
    traces.call("a", input_tokens=2400, output_tokens=100)
    traces.call("b", input_tokens=500, output_tokens=500)
    traces.call("c")
    shaping = "[shaping]\ntokens = { weight = -1, per = 1000, above = 1000 }\n"
    done = apply(traces, write("r.toml", shaping))
    assert scores(traces) == {"a": -1.5, "b": 0}
    assert [(one.reason, one.ids) for one in done.left_out] == [
        ("none of its inputs is known", ("c",))
    ]


def test_labels_alone_make_a_reward_of_what_has_one(traces: "Traces", write: Write) -> None:
    three(traces)
    for rollout, label in [("a", "right"), ("b", "wrong"), ("c", "unsure")]:
        traces.reward(rollout, None, name="route", label=label)
    done = apply(traces, write("r.toml", "[labels.route]\nright = 0.2\nwrong = -0.3\n"))
    assert scores(traces) == {"a": 0.2, "b": -0.3}
    assert [one.ids for one in done.left_out] == [("c",)]


def test_composition_can_weigh_what_another_rule_gave(traces: "Traces", write: Write) -> None:
    three(traces)
    apply(traces, grade(write, "return (rollouts['rollout_id'] == 'b').cast(pl.Int8)"))
    composed = "[measures.grade]\nweight = 2\nrange = [0, 1]\n"
    for _ in range(2):
        apply(traces, write("composed.toml", composed))
        given = traces.ask("SELECT value FROM rewards WHERE name = 'composed' ORDER BY rollout_id")
        assert [row["value"] for row in given] == [-2, 2, -2]


@pytest.mark.parametrize("name", ["r.sql", "r.toml"])
def test_store_without_rollouts_is_an_error_that_says_so(
    traces: "Traces", write: Write, name: str
) -> None:
    select, shaping = "SELECT rollout_id, 1 AS value FROM rollouts", "[shaping]\nsteps = 1"
    spec = write(name, select if name.endswith(".sql") else shaping)
    with pytest.raises(DataError, match=r"no score named 'r'\. The store has no rollouts\."):
        apply(traces, spec)


def test_select_without_rows_is_an_error_that_says_so(traces: "Traces", write: Write) -> None:
    three(traces)
    select = "SELECT rollout_id, 1 AS value FROM rollouts WHERE llm_calls > 9"
    with pytest.raises(DataError, match=r"no score named 'r'\. It gave no row\."):
        apply(traces, write("r.sql", select))
