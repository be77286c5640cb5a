"""Rollouts of a user, a session or a process that keeps its arm count as one task."""

import random
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import polars as pl
import pytest

from otel_lightning.collector.store import open_store
from otel_lightning.learner.errors import DataError
from otel_lightning.learner.policy.assumptions.units import (
    as_units,
    at_equal_times,
    check_serial,
    check_shares,
)
from otel_lightning.learner.policy.logged import units_of_store
from otel_lightning.learner.policy.logged.choices import LoggedChoices, read_choices
from otel_lightning.learner.policy.logged.window import Window

if TYPE_CHECKING:
    from conftest import Traces

ARMS = ("brief", "careful", "long")
USERS, EACH = 20, 10
BEGIN = datetime(2026, 11, 1)  # noqa: DTZ001 - the store's UTC has no zone
SPANS = """
INSERT INTO spans BY NAME
SELECT
    trace_id, span_id, "time" AS start_time, "time" AS end_time, {resource} AS resource_json,
    MAP {attributes} AS attributes,
    [{{'time': "time", 'name': 'feature_flag.evaluation', 'attributes': MAP {said}}}] AS events
FROM (SELECT *, split_part(rollout_id, '-', 1) AS who FROM arms)
"""
NOTHING = {
    "attributes": "{'gen_ai.operation.name': 'chat'}",
    "resource": "'{}'",
    "said": "{'a': 'b'}",
}
STATED = {
    "user.id": {"attributes": "{'user.id': who}"},
    "langfuse.session.id": {"attributes": "{'langfuse.session.id': who}"},
    "gen_ai.conversation.id": {"attributes": "{'gen_ai.conversation.id': who}"},
    "feature_flag.context.id": {
        "said": "{'feature_flag.key': key, 'feature_flag.context.id': who}"
    },
    "service.instance.id": {"resource": "'{\"service.instance.id\": \"' || who || '\"}'"},
    "process.pid": {"resource": "'{\"process.pid\": \"' || who || '\"}'"},
}


def log(traces: "Traces", *, keep: bool, stated: dict[str, str], mixed: bool = True) -> None:
    """Add the rollouts of some users; each user keeps an arm, or each rollout draws one."""
    rng = random.Random(0)  # noqa: S311 - sampling, not cryptography
    arms = [rng.choice(ARMS) for _ in range(USERS)]
    order = [(user, again) for user in range(USERS) for again in range(EACH)]
    if mixed:
        rng.shuffle(order)
    for place, (user, again) in enumerate(order):
        rollout, time = f"u{user}-{again}", BEGIN + timedelta(seconds=place)
        traces.call(rollout, start_time=time)
        arm = arms[user] if keep else rng.choice(ARMS)
        traces.arm(rollout, arm, 1 / 3, time=time, span_id=f"{rollout}.0")
        traces.reward(rollout, float(arm == "brief"))
        traces.task(rollout, rollout)
    with open_store(traces.store()) as store:
        store.execute(SPANS.format(**NOTHING | stated))


def read(traces: "Traces", task_by: str = "user") -> LoggedChoices:
    with open_store(traces.path) as store:
        return read_choices(store, Window("support-prompt", task_by=task_by), {})


@pytest.mark.parametrize("name", STATED)
def test_rollouts_of_what_an_arm_is_kept_for_are_one_task(traces: "Traces", name: str) -> None:
    log(traces, keep=True, stated=STATED[name])
    logged = read(traces)
    assert logged.rows["task"].n_unique() == USERS
    assert logged.units.names == (name,)
    assert f"with the same {name} have the same arm" in " ".join(logged.notes)
    assert f"{USERS * EACH} tasks count as {USERS}" in " ".join(logged.notes)
    who = pl.col("rollout_id").str.split("-").list.first()
    assert logged.rows.group_by(who).agg(pl.n_unique("split"))["split"].to_list() == [1] * USERS


@pytest.mark.parametrize(("keep", "tasks"), [(True, USERS), (False, USERS * EACH)])
def test_parts_of_a_large_log_tell_whether_arms_are_kept(
    traces: "Traces", monkeypatch: pytest.MonkeyPatch, *, keep: bool, tasks: int
) -> None:
    monkeypatch.setattr(units_of_store, "SAMPLE", USERS * EACH // 2)
    log(traces, keep=keep, stated=STATED["user.id"])
    assert read(traces).rows["task"].n_unique() == tasks


@pytest.mark.parametrize("name", STATED)
def test_users_whose_arms_are_drawn_anew_stay_many_tasks(traces: "Traces", name: str) -> None:
    log(traces, keep=False, stated=STATED[name])
    assert read(traces).rows["task"].n_unique() == USERS * EACH


def test_arms_kept_for_a_while_are_refused_if_nothing_tells_for_what(traces: "Traces") -> None:
    log(traces, keep=True, stated={}, mixed=False)
    with pytest.raises(DataError, match="began one after the other"):
        read(traces)
    assert read(traces, task_by="id").rows["task"].n_unique() == USERS * EACH


def test_arms_kept_for_a_while_by_a_known_session_are_not_refused(traces: "Traces") -> None:
    log(traces, keep=True, stated=STATED["user.id"], mixed=False)
    assert read(traces).rows["task"].n_unique() == USERS


def rows_of(users: list[int], arms: list[str], propensity: float = 1 / 3) -> pl.DataFrame:
    """Build one task for each choice, one second after the other."""
    count = len(arms)
    return pl.DataFrame(
        {
            "rollout_id": [f"r{i}" for i in range(count)],
            "task_hash": pl.Series([2**40 * i for i in range(count)], dtype=pl.UInt64),
            "arm": arms,
            "propensity": [propensity] * count,
            "policy_version": ["v1"] * count,
            "time": [BEGIN + timedelta(seconds=i) for i in range(count)],
            "user": pl.Series(users, dtype=pl.UInt64),
        }
    )


def shared_by(rows: pl.DataFrame, **units: pl.Expr) -> pl.DataFrame:
    named = (
        rows.select("rollout_id", unit=pl.lit(unit), value=value.cast(pl.UInt64))
        for unit, value in units.items()
    )
    return pl.concat(named)


def test_a_name_that_many_use_connects_nothing_if_its_arms_are_drawn_anew() -> None:
    rng = random.Random(1)  # noqa: S311 - sampling, not cryptography
    kept = [rng.choice(ARMS) for _ in range(20)]
    users = [i % 20 if i % 2 else 99 for i in range(400)]
    rows = rows_of(users, [rng.choice(ARMS) if user == 99 else kept[user] for user in users])
    merged, units = as_units(rows, shared_by(rows, user=pl.col("user")))
    assert units.names == ("user",)
    assert merged.filter(user=99)["task_hash"].n_unique() == 200
    assert merged["task_hash"].n_unique() == 210


def test_a_process_that_serves_users_in_turn_connects_nothing() -> None:
    """The arms of a process follow one another because a user keeps one; the user is the unit."""
    rng = random.Random(0)  # noqa: S311 - sampling, not cryptography
    kept = [rng.choice(ARMS) for _ in range(40)]
    rows = rows_of([i // 10 for i in range(400)], [kept[i // 10] for i in range(400)])
    shared = shared_by(rows, user=pl.col("user"), process=pl.col("user") % 2 + 1000)
    merged, units = as_units(rows, shared)
    assert units.names == ("user",)
    assert merged["task_hash"].n_unique() == 40
    check_serial(merged)
    with pytest.raises(DataError, match="began one after the other"):
        check_serial(rows)


def test_tasks_that_run_each_arm_in_turn_are_not_kept_arms() -> None:
    rows = rows_of([0] * 300, list(ARMS) * 100)
    tasks = pl.Series([2**40 * (i // 3) for i in range(300)], dtype=pl.UInt64)
    for log in (rows, rows.with_columns(task_hash=tasks)):
        check_serial(log)
        check_shares(log)


def test_copies_with_the_same_time_are_one_task() -> None:
    rng = random.Random(0)  # noqa: S311 - sampling, not cryptography
    arms = [rng.choice(ARMS) for _ in range(30)]
    rows = rows_of([0] * 300, [arms[i // 10] for i in range(300)])
    rows = rows.with_columns(time=pl.Series([BEGIN + timedelta(i // 10) for i in range(300)]))
    merged, units = as_units(rows, at_equal_times(rows))
    assert units.names == ("time of the choice",)
    assert merged["task_hash"].n_unique() == 30


@pytest.mark.parametrize(("told", "is_refused"), [(1 / 3, False), (0.33, False), (0.2, True)])
def test_shares_that_the_propensities_do_not_explain_are_refused(
    told: float, *, is_refused: bool
) -> None:
    rows = rows_of([0] * 900, list(ARMS) * 300, told)
    if not is_refused:
        check_shares(rows)
        return
    with pytest.raises(DataError, match=r"drawn for 300 of 900 tasks \(33.3%\), but its .* 20.0%"):
        check_shares(rows)


def test_propensities_that_differ_between_rollouts_say_nothing_about_shares() -> None:
    rows = rows_of([0] * 900, list(ARMS) * 300, 0.2)
    check_shares(rows.with_columns(propensity=pl.Series([0.2, 0.3, 0.4] * 300).shuffle(0)))


def test_a_rare_arm_that_came_up_twice_is_chance() -> None:
    """The normal approximation of a binomial count would refuse it."""
    rows = rows_of([0] * 42, ["rare"] * 2 + ["usual"] * 40)
    told = pl.when(pl.col("arm") == "rare").then(0.002).otherwise(0.998)
    check_shares(rows.with_columns(propensity=told))


def test_tasks_of_several_rollouts_show_wrong_shares_together() -> None:
    """One rollout of each of 40 tasks may have its arm by chance; all 400 rollouts may not."""
    rng = random.Random(0)  # noqa: S311 - sampling, not cryptography
    arms = [rng.choices(ARMS, [0.5, 0.25, 0.25])[0] for _ in range(400)]
    tasks = pl.Series([2**40 * (i // 10) for i in range(400)], dtype=pl.UInt64)
    rows = rows_of([0] * 400, arms).with_columns(task_hash=tasks)
    check_shares(rows.filter(pl.col("task_hash").is_first_distinct()))
    with pytest.raises(DataError, match=r"for \d+ of 400 rollouts \(.*\), but its .* 33.3%"):
        check_shares(rows)


@pytest.mark.parametrize("seed", range(20))
def test_tasks_that_keep_their_arm_have_the_shares_of_few_draws(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - sampling, not cryptography
    arms = [arm for _ in range(40) for arm in [rng.choice(ARMS)] * 10]
    tasks = pl.Series([2**40 * (i // 10) for i in range(400)], dtype=pl.UInt64)
    check_shares(rows_of([0] * 400, arms).with_columns(task_hash=tasks))


def test_the_only_arm_is_named_though_its_propensity_says_that_there_are_others() -> None:
    with pytest.raises(DataError, match="Only arm 'brief' was chosen, though its propensity"):
        check_serial(rows_of([0] * 100, ["brief"] * 100))
