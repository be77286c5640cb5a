"""`lightning-learn loop` that fine-tunes: a real training in each round, and its model server."""

import json
import random
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path
from socket import socket
from typing import Any

import pytest
from click.testing import CliRunner, Result
from support.running import LIMIT_S, background, eventually
from support.sent_call import SEND_CALL
from support.stores import ask
from support.untrained import untrained

from otel_lightning.learner.cli import cli
from otel_lightning.learner.loop.config_file import read_config
from otel_lightning.learner.loop.rounds import stop_rule
from otel_lightning.learner.loop.state import State

SERVER = """
import http.server, json, pathlib, sys
model = pathlib.Path(sys.argv[1])
assert (model / "model.safetensors").exists()
is_trained = (model / "gate.json").exists()  # lightning-learn weights wrote it
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_): pass
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"ready")
    def do_POST(self):
        number = int(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200); self.end_headers()
        self.wfile.write(b"up" if is_trained or number % 3 == 0 else b"down")
open(sys.argv[3], "a").write(model.name + " ")
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
"""
"""Serves the first model as one that is right in a third of the tasks, and a trained one as one
that always is. So the gate must promote the first training, and none after it."""

AGENT = (
    SEND_CALL
    + """
import http.client
server = http.client.HTTPConnection(sys.argv[1], timeout=250)
server.request("POST", "/", str(task["number"]))
status = server.getresponse().read().decode()
send_call(f"status {task['number']}", status)
sys.exit(status != "up")
"""
)

LOOP = """
[learn]
what = ["weights"]
rounds = {rounds}
[run]
tasks = "{folder}/tasks.jsonl"
command = {command}
jobs = 4
exit_code_is_reward = true
[split]
held_out = 0.4
final = 0.2
[gate]
samples = 1
[stop]
rollouts = 100
[weights]
model = "{model}"
output = "{folder}/models"
serve = "{server}"
ready = "http://127.0.0.1:{port}/"
[weights.settings]
steps = 2
"""
ROLLOUTS = 100


@pytest.fixture(scope="module")
def model(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of a few thousand parameters that has learned nothing."""
    return untrained(tmp_path_factory.mktemp("model"), tokenizer, width=16, layers=1)


def quiet_port() -> int:
    """A free port below those that the system gives to connections: the loop needs it for long."""
    while True:
        port = random.randint(20_000, 32_000)  # noqa: S311
        with closing(socket()) as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def write_loop(folder: Path, name: str, model: Path, rounds: int = 3) -> Path:
    """Write a loop with its agent, server and tasks; return its file."""
    folder.mkdir(exist_ok=True)
    (folder / "agent.py").write_text(AGENT)
    (folder / "server.py").write_text(SERVER)
    rows = [{"id": f"t{i}", "number": i} for i in range(50)]
    (folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    port = quiet_port()
    python = [sys.executable, "-I", "-S"]
    server = [*python, f"{folder}/server.py", "{model}", str(port), f"{folder}/served"]
    text = LOOP.format(
        folder=folder,
        rounds=rounds,
        command=json.dumps([*python, f"{folder}/agent.py", f"127.0.0.1:{port}"]),
        model=model,
        server=" ".join(server),
        port=port,
    )
    (folder / f"{name}.toml").write_text(text)
    return folder / f"{name}.toml"


def run(file: Path, store: Path) -> Result:
    words = ["loop", str(file), "--store", str(store)]
    return CliRunner().invoke(cli, words, catch_exceptions=False)


def stages(store: Path, name: str) -> list[tuple[int, str, str]]:
    rows = ask(store, f"SELECT round, stage, outcome FROM rounds WHERE loop = '{name}'")
    return sorted((row["round"], row["stage"], row["outcome"]) for row in rows)


@pytest.mark.slow
def test_loop_fine_tunes_serves_the_winner_and_stops_by_the_number_of_rollouts(
    served: Path, tmp_path: Path, model: Path
) -> None:
    file = write_loop(tmp_path / "tuned", "tuned", model)
    folder = file.parent
    result = run(file, served)
    assert result.exit_code == 0, result.output
    found = {(n, stage): outcome for n, stage, outcome in stages(served, "tuned")}
    assert found[1, "weights_gate"] == "promoted"
    assert found[2, "weights_gate"] == "refused"  # nothing is better than always right
    assert (3, "run") not in found
    assert f"of {ROLLOUTS} that [stop] allows" in result.stdout
    assert (folder / "models" / "live").resolve() == folder / "models" / "tuned.1"
    # Live and new in each round, and the first and the last model for the report. A server that
    # has the right model already stays.
    assert (folder / "served").read_text().split() == [
        model.name, model.name, "tuned.1", "tuned.1", "tuned.2", model.name, "tuned.1",
    ]  # fmt: skip
    assert "final tasks, which were read only now: before " in result.stdout
    runs = ask(served, "SELECT run_id, outcome FROM runs WHERE run_id LIKE 'tuned.%' ORDER BY 1")
    assert [row["run_id"] for row in runs] == ["tuned.1.weights", "tuned.2.weights"]
    with pytest.raises(OSError, match="refused"), closing(socket()) as probe:
        probe.connect(("127.0.0.1", int(read_port(file))))


@pytest.mark.slow
def test_gate_of_a_fine_tuned_model_allows_for_losses_in_the_given_range(
    served: Path, tmp_path: Path, model: Path
) -> None:
    file = write_loop(tmp_path, "wide", model, rounds=1)
    file.write_text(file.read_text().replace("[gate]", "[gate]\nreward_range = [-10, 1]"))
    result = run(file, served)
    assert result.exit_code == 3, result.output
    (gate,) = ask(
        served,
        "SELECT details::VARCHAR AS said FROM rounds WHERE loop = 'wide' AND stage LIKE '%_gate'",
    )
    assert "confidence for rewards in [-10, 1], not above 0" in gate["said"]


def read_port(file: Path) -> str:
    weights = read_config(file).weights
    assert weights is not None
    return weights.ready.rstrip("/").rpartition(":")[2]


def test_stop_rules_count_rollouts_of_runs_and_gates_and_the_hours_of_all_stages(
    tmp_path: Path,
) -> None:
    ended: dict[tuple[int, str], tuple[str, dict[str, Any]]] = {
        (0, "start"): ("done", {}),
        (1, "run"): ("done", {"rollouts": 40, "mean": 0.5}),
        (1, "weights_gate"): ("promoted", {"rollouts": 20, "alpha": 0.01}),
        (2, "run"): ("done", {"rollouts": 40, "mean": 0.5}),
        (2, "weights_gate"): ("refused", {"rollouts": 20, "alpha": 0.01}),
    }
    seconds = dict.fromkeys(ended, 900.0)
    state = State(tmp_path / "t.duckdb", "x", dict(ended), seconds)

    def stopped(rule: str, number: int) -> str | None:
        file = tmp_path / "x.toml"
        file.write_text(
            "[run]\ntasks = 'x'\ncommand = ['x']\n[policy]\nkey = 'k'\nflags = 'f'\n"
            f"[learn]\nwhat = ['policy']\n[stop]\n{rule}\n"
        )
        return stop_rule(read_config(file).stop, state, number)

    assert stopped("rollouts = 61", 1) is None
    assert stopped("rollouts = 60", 1) == "60 rollouts were run, of 60 that [stop] allows"
    assert stopped("rollouts = 61", 2) == "120 rollouts were run, of 61 that [stop] allows"
    assert stopped("hours = 0.8", 1) is None  # three stages of a quarter of an hour
    assert stopped("hours = 0.75", 1) == "0.75 hours were worked, of 0.75 that [stop] allows"
    assert stopped("no_gain_rounds = 1", 1) is None
    assert stopped("no_gain_rounds = 2", 2) is None
    assert stopped("no_gain_rounds = 1", 2) == "1 round in a row gained nothing"


@pytest.mark.slow
def test_loop_that_is_killed_while_it_trains_ends_with_the_same_runs_and_models(
    served: Path, tmp_path: Path, model: Path
) -> None:
    file = write_loop(tmp_path / "cut", "cut", model, rounds=1)
    folder = file.parent
    command = [sys.executable, "-m", "otel_lightning.learner", "loop", str(file)]
    rng = random.Random(5)  # noqa: S311 - moments, not cryptography
    for _ in range(2):
        with background(*command, "--store", served, stdout=subprocess.DEVNULL) as process:
            eventually(lambda: (1, "transitions", "done") in stages(served, "cut"), LIMIT_S)
            with suppress(subprocess.TimeoutExpired):
                process.wait(rng.uniform(1, 8))
    ended = run(file, served)
    assert ended.exit_code == 0, ended.output
    runs = ask(served, "SELECT run_id, outcome FROM runs WHERE run_id LIKE 'cut.%'")
    assert [row["run_id"] for row in runs] == ["cut.1.weights"]
    steps = ask(
        served,
        "SELECT step FROM run_steps WHERE run_id = 'cut.1.weights' AND name = 'loss' "
        "GROUP BY step HAVING count(*) > 1",
    )
    assert steps == []  # what the killed training had written of its curve is gone
    assert (folder / "models" / "live").resolve() == folder / "models" / "cut.1"
    left = {path.name for path in (folder / "models").iterdir()} - {".live.lock"}
    assert left == {"cut.1", "live"}
