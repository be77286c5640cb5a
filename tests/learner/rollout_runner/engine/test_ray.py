"""Attempts as tasks of a real Ray cluster of two nodes on this machine."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.running import LIMIT_S, background, eventually, running
from support.stores import ask

from otel_lightning.learner import DataError
from otel_lightning.learner.rollout_runner import Arms, Grading, Job, run_agent

Tasks = Callable[..., Path]
Agent = Callable[[str], list[str]]
pytestmark = [
    pytest.mark.slow,
    # Ray leaves sockets and files open when it shuts down.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Two nodes of one CPU each; yield their ids."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    small = {"num_cpus": 1, "object_store_memory": 80_000_000, "include_dashboard": False}
    found = Cluster(initialize_head=True, head_node_args=small)
    found.add_node(num_cpus=1, object_store_memory=80_000_000)
    monkeypatch.setenv("RAY_ADDRESS", found.address)
    yield [node.node_id for node in found.list_all_nodes()]
    found.shutdown()


AGENT = """
open(LOG, 'a').write(os.environ['LIGHTNING_ROLLOUT_ID'] + ' ' + os.environ['RAY_NODE'] + '\\n')
assert json.load(open(sys.argv[1])) == task == json.load(open(os.environ['LIGHTNING_TASK_FILE']))
time.sleep(0.3)
if task['id'] == 'hangs': time.sleep(600)
if task['id'] == 'fails': sys.exit('no')
print(task['question'])"""


def test_attempts_run_on_both_nodes_and_resume(
    served: Path, tmp_path: Path, tasks: Tasks, agent: Agent, cluster: list[str]
) -> None:
    log = tmp_path / "log"
    names = [*"abcdefgh", "fails", "hangs"]
    file = tasks(*({"id": name, "question": name} for name in names))
    body = AGENT.replace("LOG", repr(str(log)))
    body = "import os; os.environ['RAY_NODE'] = os.environ.get('RAY_RAYLET_PID', '?')\n" + body
    job = Job(file, [*agent(body), "{file}"], name="ray", jobs=2, timeout=20, ray=True)
    report = run_agent(served, job, Grading(by_exit_code=True))
    assert report.statuses == {"ok": 8, "failed": 1, "timeout": 1}
    rows = {row["task_id"]: row for row in ask(served, "FROM attempts WHERE run_id = 'ray'")}
    assert (rows["a"]["output"], rows["fails"]["errors"]) == ("a\n", "no\n")
    again = run_agent(served, job, Grading(by_exit_code=True))
    assert (again.done_before, again.rewards) == (10, report.rewards)
    lines = [line.split() for line in log.read_text().splitlines()]
    assert len({line[0] for line in lines}) == len(lines) == 10
    assert len({line[1] for line in lines}) == len(cluster) == 2


ARMED = """
document = json.load(open(os.environ['FLAGD_OFFLINE_FLAG_SOURCE_PATH']))
assert sys.argv[1] == '--flags=' + os.environ['FLAGD_OFFLINE_FLAG_SOURCE_PATH']
print(document['flags']['prompt']['defaultVariant'])"""


def test_each_arm_travels_to_the_nodes_with_its_flag_file(
    served: Path, tmp_path: Path, tasks: Tasks, agent: Agent, cluster: list[str]
) -> None:
    flag = {"state": "ENABLED", "defaultVariant": "a", "variants": {"a": "A", "b": "B"}}
    flags = tmp_path / "flags.json"
    flags.write_text(json.dumps({"flags": {"prompt": flag}}))
    file = tasks({"id": "x", "question": "?"}, {"id": "y", "question": "?"})
    arms = Arms("prompt", flags, ["a", "b"])
    command = [*agent(ARMED), "--flags={flags}"]
    report = run_agent(served, Job(file, command, name="ray-arms", ray=True, arms=arms))
    assert (report.statuses, len(cluster)) == ({"ok": 4}, 2)
    rows = ask(served, "SELECT arm, output FROM attempts WHERE run_id = 'ray-arms'")
    assert sorted((row["arm"], row["output"]) for row in rows) == [
        ("a", "a\n"), ("a", "a\n"), ("b", "b\n"), ("b", "b\n"),
    ]  # fmt: skip


SENDS = """
import urllib.request
host = os.environ['OTEL_EXPORTER_OTLP_ENDPOINT']
name, _, value = os.environ['OTEL_EXPORTER_OTLP_HEADERS'].replace('%20', ' ').partition('=')
heads = {name: value, 'Content-Type': 'application/x-protobuf'}
print(urllib.request.urlopen(urllib.request.Request(host + '/v1/traces', b'', heads)).status)"""


def test_the_token_of_the_receiver_travels_to_the_nodes(
    tmp_path: Path,
    tasks: Tasks,
    agent: Agent,
    cluster: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with running(tmp_path / "traces.duckdb", "--token", "secret") as ingester:
        # After the cluster has started: its nodes do not inherit it.
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20secret")
        job = Job(tasks({"id": "x", "question": "?"}), agent(SENDS), name="token", ray=True)
        report = run_agent(ingester.store, job)
        assert (report.statuses, len(cluster)) == ({"ok": 1}, 2), report.reasons


def test_cluster_without_a_cpu_is_waited_for_with_a_word_and_works_once_it_has_one(
    served: Path, tmp_path: Path, tasks: Tasks, agent: Agent
) -> None:
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    none = {"num_cpus": 0, "object_store_memory": 80_000_000, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=none)
    learn = [sys.executable, "-m", "otel_lightning.learner", "run", "--ray", "--name", "no-cpu"]
    where = ["--store", str(served), "--tasks", str(tasks({"id": "a", "x": 1}))]
    said = tmp_path / "said"
    environment = {**os.environ, "RAY_ADDRESS": cluster.address}
    try:
        with (
            said.open("w") as file,
            background(*learn, *where, "--", *agent("pass"), stderr=file, env=environment) as run,
        ):
            eventually(lambda: "none of its machines has a CPU" in said.read_text(), LIMIT_S)
            assert run.poll() is None
            cluster.add_node(num_cpus=1, object_store_memory=80_000_000)
            assert run.wait(LIMIT_S) == 0
    finally:
        cluster.shutdown()
    assert [row["status"] for row in ask(served, "FROM attempts WHERE run_id = 'no-cpu'")] == ["ok"]


def test_no_cluster_is_said(
    served: Path, tasks: Tasks, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    job = Job(tasks({"id": "a", "x": 1}), agent("pass"), name="no-ray", ray=True)
    with pytest.raises(DataError, match=r"no Ray cluster to connect to\. .* ray start --head"):
        run_agent(served, job)
    for address in ("127.0.0.1:1", "nonsense"):
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(DataError, match=f"at RAY_ADDRESS={address} .* ray start --head"):
            run_agent(served, job)
