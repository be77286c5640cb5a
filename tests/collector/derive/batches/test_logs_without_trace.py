"""Log records without a trace: the short way gives the rows of the whole one."""

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.batches import logs_without_trace, to_arrow
from otel_lightning.collector.derive.rows import Log
from otel_lightning.collector.refresh.schemas import schemas
from otel_lightning.collector.store import open_store

REWARD = Log(
    time_ns=5,
    trace_id=None,
    span_id=None,
    event_name="gen_ai.evaluation.result",
    body=None,
    attributes={
        "gen_ai.evaluation.name": "right",
        "gen_ai.evaluation.score.value": "0.5",
        "lightning.rollout.id": "r1",
        "lightning.feedback.id": "one",
        "lightning.task.id": "t1",
    },
    resource={"service.name": "agent"},
    scope_name=None,
)
ARM = replace(
    REWARD,
    event_name="feature_flag.evaluation",
    attributes={
        "feature_flag.key": "prompt",
        "feature_flag.result.variant": "short",
        "lightning.rollout.id": "r2",
    },
)
ATTEMPT = replace(REWARD, event_name="lightning.attempt", body="{}", attributes={})


def said(log: Log, **attributes: str) -> Log:
    more = {name.replace("__", "."): value for name, value in attributes.items()}
    return replace(log, attributes={**log.attributes, **more})


@pytest.fixture(scope="module")
def columns(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, pa.Schema]]:
    with open_store(tmp_path_factory.mktemp("store") / "t.duckdb") as store:
        yield schemas(store)


def test_rows_are_those_of_the_whole_way(columns: dict[str, pa.Schema]) -> None:
    logs = [
        said(REWARD, gen_ai__conversation__id="c1"),
        ATTEMPT,
        ARM,
        ARM,
        replace(REWARD, time_ns=4),  # with the same id: the later of both counts
        said(REWARD, lightning__feedback__id="two", lightning__task__id="t2"),
        said(REWARD, lightning__feedback__id="three", lightning__rollout__id="r3"),
        said(REWARD, gen_ai__evaluation__score__value="nonsense", lightning__feedback__id="four"),
    ]
    assert logs_without_trace.state_rollouts(logs)
    short, whole = logs_without_trace.derived(logs), derive([], logs)
    assert len(short.rewards) == 4
    assert short.tasks == {"r1": "t1", "r3": "t1"}
    assert dict(to_arrow.tables(short, columns)) == dict(to_arrow.tables(whole, columns))


@pytest.mark.parametrize(
    "log",
    [
        replace(REWARD, trace_id="0" * 31 + "1"),
        replace(REWARD, attributes={"gen_ai.evaluation.score.value": "1", "session.id": "s"}),
        replace(ARM, attributes={**ARM.attributes, "lightning.rollout.id": ""}),
        replace(REWARD, event_name="gen_ai.evaluation.relevance", attributes={"session.id": "s"}),
    ],
)
def test_record_whose_rollout_has_to_be_found_goes_the_whole_way(log: Log) -> None:
    assert not logs_without_trace.state_rollouts([REWARD, log])
