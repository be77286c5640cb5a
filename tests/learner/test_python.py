"""The page docs/reference/python.md, executed against a store, and what it promises."""

import inspect
import json
import os
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from support.judge_server import judge_server
from support.running import finish

import otel_lightning.collector
import otel_lightning.learner
from otel_lightning.collector import StoreError, open_store
from otel_lightning.learner import DataError, Traces, Training, export_transitions, learn_weights
from otel_lightning.learner.export.formats import FORMATS

if TYPE_CHECKING:
    from conftest import Traces as Recorded

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"```python notest\n(.*?)```", re.DOTALL)
PAGE = (DOCS / "reference" / "python.md").read_text()
BLOCKS = BLOCK.findall(PAGE)
NOTEBOOK = BLOCK.findall((DOCS / "how-to" / "analyse-in-a-notebook.md").read_text())
RULE = """
import polars as pl

def short(rollouts):
    return (rollouts["llm_calls"] < 2).cast(pl.Float64)
"""
GRADE = """
import polars as pl

def right(rollouts):
    return (rollouts["output"] == rollouts["expected"].cast(pl.String)).cast(pl.Float64)
"""
AGENT = "import os, sys; sys.exit(0 if os.environ['LIGHTNING_TASK_ID'] else 1)"
ARMS = ("brief", "careful")


@pytest.fixture
def recorded(traces: "Recorded", monkeypatch: pytest.MonkeyPatch) -> str:
    """A store of 40 rollouts of 10 tasks, in the current folder, with a rule and a flag file."""
    rng = random.Random(0)  # noqa: S311 - sampling, not cryptography
    for number in range(40):
        rollout = f"r{number:02}"
        said = [{"role": "user", "parts": [{"type": "text", "content": "quality=1"}]}]
        for step in range(1 + number % 2):
            traces.call(rollout, step, input_messages=json.dumps(said))
        traces.arm(rollout, rng.choice(ARMS), 0.5)
        traces.task(rollout, f"task-{number // 4}")
        traces.reward(rollout, float(rng.random() < 0.5))
    flag = {
        "state": "ENABLED",
        "variants": {arm: f"Be {arm}." for arm in ARMS},
        "defaultVariant": ARMS[0],
        "targeting": {"fractional": [[arm, 1] for arm in ARMS]},
    }
    folder = traces.path.parent
    (folder / "flags.json").write_text(json.dumps({"flags": {"support-prompt": flag}}))
    (folder / "rewards.py").write_text(RULE)
    (folder / "grade.py").write_text(GRADE)
    (folder / "agent.py").write_text(AGENT)
    tasks = [{"id": f"new-{number}", "input": "2 + 2", "expected": "4"} for number in range(2)]
    (folder / "tasks.jsonl").write_text("\n".join(map(json.dumps, tasks)))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(folder)
    return traces.store()


@pytest.mark.slow
@pytest.mark.usefixtures("recorded")
def test_page_works_as_it_is_written() -> None:
    *executed, weights = BLOCKS
    names: dict[str, Any] = {}
    with judge_server() as server:
        for block in executed:
            exec(block.replace("http://127.0.0.1:8000/v1", server.url), names)  # noqa: S102
    assert names["frame"].shape[1] == 2
    assert names["tokens"].columns == ["tokens"]
    assert names["summary"].transitions == 60
    assert names["advantages"].height == 10
    assert pl.read_parquet("sft.parquet").height > 0
    assert names["report"].tallies[0].judged == 20
    assert set(names["learned"].weights) == set(ARMS)
    assert 'learn_weights("rft", Training(Path("base-model")), "fine-tuned")' in weights
    inspect.signature(learn_weights).bind("s", "rft", Training(Path("base-model")), Path("out"))


@pytest.mark.slow
@pytest.mark.usefixtures("recorded")
def test_page_of_the_notebook_works_as_it_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    for block in NOTEBOOK:
        if block.startswith("# rewards.py\n"):
            Path("rewards.py").write_text(block)
        else:
            exec(block, names)  # noqa: S102
    assert names["scores"]["value"].mean() == 0.5
    assert names["dataset"].num_rows == names["frame"].shape[0] == names["transitions"].height == 60
    assert set(names["methods"]) < set(names["advantages"].columns)
    short = names["advantages"].filter(pl.col("rollout_id") == "r00")
    assert short.select("identical", "group").row(0) == (1.0, pytest.approx(1 - 1 / 3))
    assert names["curve"].is_empty()
    assert names["rounds"].is_empty()
    assert set(names["gates"]["command"]) == {"transitions"}
    assert re.search(r"^snips +0\.\d{3} +\(", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.parametrize("module", [otel_lightning.collector, otel_lightning.learner])
def test_every_public_name_exists_and_is_on_the_page(module: Any) -> None:
    documented = set(re.findall(r"^\| `(\w+)", PAGE, re.MULTILINE)) | {"Traces"}
    for name in module.__all__:
        assert getattr(module, name) is not None
        assert name in dir(module)
        assert name in documented
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = module.nonsense


def test_every_method_of_traces_is_on_the_page() -> None:
    methods = {name for name, _ in inspect.getmembers(Traces, inspect.isfunction)} - {"__init__"}
    assert methods <= set(re.findall(r"^\| `(\w+)\(", PAGE, re.MULTILINE))


STORES: list[Callable[[str], Any]] = [str, Path]


@pytest.mark.parametrize("as_given", STORES)
def test_store_is_taken_by_its_path(recorded: str, as_given: Callable[[str], Any]) -> None:
    traces = Traces(as_given(recorded))
    assert traces.make_transitions(credit="group").rollouts == 40
    assert traces.transitions().collect().height == 60


def test_open_store_is_taken_too_and_stays_open(recorded: str) -> None:
    with open_store(recorded) as store:
        store.limit(700_000_000)
        traces = Traces(store)
        setting = "SELECT current_setting('memory_limit') AS memory, current_setting('threads')"
        before = traces.sql(setting)
        assert traces.make_transitions().rollouts == 40
        assert traces.apply_rule("rewards.py:short").scored == 40
        done = export_transitions(
            store, FORMATS["trl-sft"], Path("sft.jsonl"), split="all", threshold=0.0
        )
        assert done.rows > 0
        assert len(traces.messages("r01")) == 3
        assert traces.transitions().select("rollout_id").collect().height == 60
        assert traces.sql(setting).equals(before)


def test_frame_reads_only_the_columns_that_are_used(
    recorded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(recorded) as store:
        calls = Traces(store).calls()
        asked: list[str] = []
        query = store.query
        monkeypatch.setattr(store, "query", lambda sql: asked.append(sql) or query(sql))
        assert calls.select("rollout_id").collect().columns == ["rollout_id"]
    assert len(asked) == 1
    assert asked[0].startswith('SELECT "rollout_id" FROM')


def test_frames_are_filtered_and_cut_as_asked(recorded: str) -> None:
    rollouts = Traces(recorded).rollouts()
    assert rollouts.filter(pl.col("llm_calls") == 2).collect().height == 20
    assert rollouts.head(3).collect()["rollout_id"].to_list() == ["r00", "r01", "r02"]
    assert Traces(recorded).rewards().collect().height == 40


def test_conversation_of_no_rollout_is_an_error_that_says_where_they_are(recorded: str) -> None:
    with pytest.raises(DataError, match=r"No rollout 'x'\. Traces\.rollouts\(\) lists them\."):
        Traces(recorded).messages("x")


def test_unknown_format_is_an_error_that_lists_the_known(recorded: str) -> None:
    with pytest.raises(DataError, match="Unknown format 'csv'. Known: trl-sft,"):  # noqa: RUF043
        Traces(recorded).export("csv", "x.parquet")


def test_store_that_is_not_there_is_an_error_and_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="There is no store at"):
        Traces(tmp_path / "none.duckdb").rollouts()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("package", ["collector", "learner"])
def test_importing_the_package_loads_nothing_heavy(package: str) -> None:
    heavy = "{'duckdb', 'polars', 'pyarrow', 'numpy', 'torch', 'openai'}"
    code = f"import sys, otel_lightning.{package}; print(sorted({heavy} & set(sys.modules)))"
    process = finish(sys.executable, "-c", code, check=True)
    assert process.stdout.strip() == "[]"
