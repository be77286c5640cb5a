"""`lightning-learn loop`: rounds that improve a prompt, kills at any second, and its stop rules."""

import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from support.prompt_server import (
    KINDS,
    RULES,
    PromptServer,
    learns_rules,
    prompt_server,
    proposal,
    true_success,
)
from support.running import LIMIT_S, background, eventually, finish
from support.sent_call import SEND_CALL
from support.stores import ask

from otel_lightning.collector.store import open_store, read_server
from otel_lightning.learner.cli import cli
from otel_lightning.learner.loop.config_file import read_config
from otel_lightning.learner.loop.loop import Loop
from otel_lightning.learner.loop.splits import divide
from otel_lightning.learner.loop.stages import learn_shares
from otel_lightning.learner.loop.state import State
from otel_lightning.learner.named_sql import append
from otel_lightning.learner.policy.serving import flag_document
from otel_lightning.learner.policy.serving import flag_file as files
from otel_lightning.learner.rollout_runner import read_tasks
from otel_lightning.learner.runs import Run

FIRST = "You answer the requests of customers."
AGENT = (
    SEND_CALL
    + """
import random, re
flags = json.load(open(os.environ["FLAGD_OFFLINE_FLAG_SOURCE_PATH"]))["flags"]
((key, flag),) = flags.items()
arm = flag["defaultVariant"]
rules = dict(re.findall(r"^(\\w+): (\\w+)[.]$", flag["variants"][arm], re.M))
right = task["word"]
chance = 0.25 if task["kind"] not in rules else 0.9 if rules[task["kind"]] == right else 0.05
success = random.Random(int(os.environ["LIGHTNING_SEED"])).random() < chance
explanation = {} if success else {"gen_ai__evaluation__explanation": f"The answer is {right}."}
chosen = dict(feature_flag__key=key, feature_flag__result__variant=arm, lightning__propensity=1.0)
reward = dict(gen_ai__evaluation__name="success",
              gen_ai__evaluation__score__value=float(success), **explanation)
send_call(f"My {task['kind']}, please.", "Done.",
          ("feature_flag.evaluation", chosen), ("gen_ai.evaluation.result", reward))
"""
)


@pytest.fixture
def model() -> Iterator[PromptServer]:
    with prompt_server(learns_rules) as server:
        yield server


def write_loop(folder: Path, name: str, url: str, text: str = "", tasks: int = 60) -> Path:
    """Write a loop with its agent, tasks and flag; return its file."""
    folder.mkdir(exist_ok=True)
    (folder / "agent.py").write_text(AGENT)
    rows = [
        {"id": f"t{i}", "order": i, "kind": KINDS[i % 5], "word": RULES[KINDS[i % 5]]}
        for i in range(tasks)
    ]
    (folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    flag = {"state": "ENABLED", "defaultVariant": "first", "variants": {"first": FIRST}}
    (folder / "flags.json").write_text(json.dumps({"flags": {f"{name}-prompt": flag}}, indent=2))
    command = json.dumps([sys.executable, "-I", "-S", str(folder / "agent.py")])
    file = folder / f"{name}.toml"
    file.write_text(f"""{text}
[run]
tasks = "{folder}/tasks.jsonl"
command = {command}
jobs = 4
reward = "success"
[prompts]
key = "{name}-prompt"
flags = "{folder}/flags.json"
endpoint = "{url}"
model = "writer"
candidates = 1
records = 60
retries = 0
""")
    return file


def run(file: Path, store: Path) -> Result:
    return CliRunner().invoke(
        cli, ["loop", str(file), "--store", str(store)], catch_exceptions=False
    )


def live_text(folder: Path, name: str) -> str:
    document = files.read_flag_file(folder / "flags.json", f"{name}-prompt")
    shares = flag_document.live_shares(document, f"{name}-prompt")
    best = max(shares, key=lambda arm: shares[arm])
    return str(document["flags"][f"{name}-prompt"]["variants"][best])


def tables(store: Path, name: str) -> dict[str, list[dict[str, Any]]]:
    """What a loop wrote, without times and names; transitions are of the whole store."""
    where = f"LIKE '{name}.%'"
    found = {
        "rounds": f"SELECT round, stage, outcome, details FROM rounds WHERE loop = '{name}'"
        " AND stage NOT IN ('start', 'transitions') ORDER BY round, stage",
        "prompts": "SELECT call, variant, parent, text, reason, refused, len(records) AS records"
        f" FROM prompts WHERE run_id {where} ORDER BY run_id, call",
        "runs": f"SELECT run_id, command, outcome FROM runs WHERE run_id {where} ORDER BY run_id",
        "policies": f"SELECT version, status, arms FROM policies WHERE version {where}",
        "promotions": "SELECT served_version, action, arms, after FROM promotions"
        f" WHERE served_version {where} ORDER BY time",
        "rollouts": "SELECT run_id, task_id, sample, arm, count(*) AS n FROM attempts"
        f" WHERE run_id {where} AND status = 'ok' GROUP BY ALL ORDER BY ALL",
    }
    rows = {table: ask(store, sql) for table, sql in found.items()}
    plain = re.sub(rf"\b{name}\b", "LOOP", json.dumps(rows, default=str))
    return dict(json.loads(plain))


def told(name: str, store: Path, sql: str) -> list[dict[str, Any]]:
    return ask(store, sql.replace("LOOP", name))


def check_splits(store: Path, name: str) -> None:
    """No final task ran before the end; no held-out task was shown to the proposing model."""
    tasks: dict[str, set[str]] = {}
    for row in told(name, store, "SELECT run_id, task_id FROM attempts WHERE run_id LIKE 'LOOP.%'"):
        kind = "final" if ".final." in row["run_id"] else row["run_id"].split(".")[-1]
        tasks.setdefault(kind, set()).add(row["task_id"])
    assert set(tasks) == {"train", "gate", "final"}
    assert not tasks["final"] & (tasks["train"] | tasks["gate"])
    assert not tasks["train"] & tasks["gate"]
    rows = told(name, store, "SELECT records FROM prompts WHERE run_id LIKE 'LOOP.%'")
    shown = {rollout for row in rows for rollout in row["records"]}
    train = "SELECT rollout_id FROM attempts WHERE run_id LIKE 'LOOP.%.train'"
    assert shown
    assert shown <= {row["rollout_id"] for row in told(name, store, train)}


def attempts_begun(store: Path, name: str) -> int:
    """How many attempts the runs of a loop have started so far."""
    journals = store.with_name(f"{store.name}.runs").glob(f"{name}.*/journal.jsonl")
    return sum(journal.read_text().count('"event": "started"') for journal in journals)


def start_and_kill(file: Path, store: Path, kills: int, seed: int) -> int:
    """Run a loop in processes that are killed at random moments; return how many were killed.

    A moment is a number of attempts and a part of a second after it, so that kills meet work and
    not only the start of the process, however loaded the machine is.
    """
    rng, killed = random.Random(seed), 0  # noqa: S311 - moments, not cryptography
    command = [sys.executable, "-m", "otel_lightning.learner", "loop", str(file)]
    while killed < kills:
        moment = attempts_begun(store, file.stem) + rng.randint(1, 20)
        with background(*command, "--store", store, stdout=subprocess.DEVNULL) as process:

            def is_there(process: "subprocess.Popen[bytes]" = process, at: int = moment) -> bool:
                return process.poll() is not None or attempts_begun(store, file.stem) >= at

            eventually(is_there, LIMIT_S)
            with suppress(subprocess.TimeoutExpired):
                assert process.wait(rng.uniform(0, 1)) == 0
                return killed
        killed += 1
    finish(*command, "--store", store, check=True)
    return killed


SMALL = """[learn]
rounds = 1
[gate]
samples = 1
[split]
held_out = 0.4
final = 0.15
"""


@pytest.mark.slow
def test_loop_serves_a_better_prompt_and_ends_with_the_same_tables_however_often_it_is_killed(
    served: Path, tmp_path: Path, model: PromptServer
) -> None:
    hook = tmp_path / "hook.py"
    hook.write_text(f"import sys; open({str(tmp_path / 'told')!r}, 'a').write(sys.stdin.read())")
    hooks = f'[hooks]\nafter_round = "{sys.executable} -I -S {hook}"\n'
    whole = write_loop(tmp_path / "whole", "whole", model.url, SMALL + hooks, tasks=50)
    result = run(whole, served)
    assert result.exit_code == 0, result.output
    assert true_success(live_text(tmp_path / "whole", "whole")) >= 0.75
    assert "final tasks, which were read only now: before " in result.stdout
    check_splits(served, "whole")
    assert (tmp_path / "told").read_text().count('"round": 1') == 1
    before = tables(served, "whole")
    assert [row["stage"] for row in before["rounds"]] == [
        "final", "end", "prompts", "prompts_gate", "run",
    ]  # fmt: skip
    assert run(whole, served).exit_code == 0  # nothing is left to do
    assert tables(served, "whole") == before

    killed = write_loop(tmp_path / "killed", "killed", model.url, SMALL, tasks=50)
    assert start_and_kill(killed, served, kills=2, seed=7) > 0
    assert tables(served, "killed") == before
    assert live_text(tmp_path / "killed", "killed") == live_text(tmp_path / "whole", "whole")


def test_settings_can_be_mended_until_the_agent_has_run(served: Path, tmp_path: Path) -> None:
    (tmp_path / "grade.py").write_text("def right(rollouts):\n    return rollouts['seconds']\n")
    file = write_loop(tmp_path, "mended", "http://127.0.0.1:9", "[learn]\nrounds = 1\n", tasks=24)
    text = file.read_text()
    file.write_text(text.replace('reward = "success"', f'grade = "{tmp_path}/grade.py:wrong"'))
    first = run(file, served)
    assert (first.exit_code, "has no function 'wrong'" in first.stderr) == (1, True)
    file.write_text(text)
    second = run(file, served)
    assert "changed after it began" not in second.stderr
    assert "Round 1, run: done" in second.stdout
    file.write_text(text.replace('reward = "success"', 'reward = "other"'))
    assert "The settings of loop 'mended' changed after it began" in run(file, served).stderr


def test_loop_without_gain_stops_and_exits_with_3(served: Path, tmp_path: Path) -> None:
    text = "[learn]\nrounds = 9\n[stop]\nno_gain_rounds = 1\n[split]\nfinal = 0.3\n"
    with prompt_server(lambda _, number: proposal(f"Be kind, way {number}.")) as model:
        file = write_loop(tmp_path, "idle", model.url, text, tasks=24)
        result = run(file, served)
    assert result.exit_code == 3, result.output
    assert "Stopped after round 1: 1 round in a row gained nothing." in result.stdout
    assert "Nothing that is served has changed" in result.stdout
    assert live_text(tmp_path, "idle") == FIRST
    file.write_text(file.read_text().replace('reward = "success"', 'reward = "other"'))
    changed = run(file, served)
    assert changed.exit_code == 1
    assert "The settings of loop 'idle' changed after it began" in changed.stderr
    file.write_text(
        file.read_text().replace('"other"', '"success"').replace("no_gain_rounds = 1", "hours = 9")
    )
    more = run(file, served)
    assert more.exit_code == 1
    assert "has made its last report after round 1" in more.stderr


def test_round_for_whose_gate_no_error_probability_is_left_does_not_begin(
    served: Path, tmp_path: Path
) -> None:
    # A loop of one round, which was killed before its last report and has more rounds now.
    file = write_loop(tmp_path, "spent", "http://127.0.0.1:9/v1", "[learn]\nrounds = 2\n")
    state = State.of(served, "spent")
    for stage in ("run", "transitions", "prompts", "end"):
        state.once(1, stage, lambda: ("done", {}))
    state.once(1, "prompts_gate", lambda: ("refused", {"alpha": 0.05}))
    result = run(file, served)
    assert result.exit_code == 1
    assert "Round 1, prompts_gate: refused (before); level 0.05." in result.stdout
    assert (
        "No gate of round 2 could pass: the rounds before have spent [gate] alpha, 0.05. Set"
        in (result.stderr)
    )
    assert ask(served, "SELECT 1 FROM rounds WHERE loop = 'spent' AND round = 2") == []


def test_loop_asks_for_the_range_of_rewards_before_it_learns_and_then_goes_on(
    served: Path, tmp_path: Path, model: PromptServer
) -> None:
    file = write_loop(tmp_path, "graded", model.url, SMALL, tasks=24)
    agent = tmp_path / "agent.py"
    agent.write_text(agent.read_text().replace("=float(success)", "=0.9 * success"))
    result = run(file, served)
    assert result.exit_code == 1
    assert "No gate of this loop would pass: the rewards are not all 0 or 1" in result.stderr
    assert "which is reward_range = [LOW, HIGH] of [gate] in the loop's file" in result.stderr
    assert ask(served, "SELECT 1 FROM rounds WHERE loop = 'graded' AND stage = 'run'") == []
    attempts = "SELECT count(*) AS n FROM attempts WHERE run_id = 'graded.1.train'"
    before = ask(served, attempts)
    text = file.read_text()
    file.write_text(text.replace("[gate]", "[gate]\nreward_range = [0, 0.5]"))
    narrow = run(file, served)
    assert (
        "A reward of 0.9 was logged, which is outside reward_range = [0, 0.5] of [gate] in the "
        "loop's file. Widen the range there" in narrow.stderr
    )
    assert "--reward" not in narrow.stderr
    file.write_text(text.replace("[gate]", "[gate]\nreward_range = [-10, 1]"))
    ended = run(file, served)
    assert ended.exit_code == 3, ended.output
    (gate,) = ask(
        served,
        "SELECT details::VARCHAR AS said FROM rounds WHERE loop = 'graded' AND stage LIKE '%_gate'",
    )
    assert "confidence for rewards in [-10, 1], not above 0" in gate["said"]
    assert ask(served, attempts) == before  # nothing ran twice
    assert before[0]["n"] > 0


SERVER = """
import io, json, os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import unquote

agent, path = compile(open(sys.argv[1]).read(), sys.argv[1], "exec"), sys.argv[2]

class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        task = self.rfile.read(int(self.headers["Content-Length"])).decode()
        carried = dict(one.split("=") for one in self.headers["baggage"].split(","))
        asked = json.loads(unquote(carried["lightning.arm"]))
        flags = json.load(open(path))["flags"]
        flags = {asked["key"]: {**flags[asked["key"]], "defaultVariant": asked["arm"]}}
        json.dump({"flags": flags}, open(path + ".asked", "w"))
        os.environ["FLAGD_OFFLINE_FLAG_SOURCE_PATH"] = path + ".asked"
        os.environ["LIGHTNING_ROLLOUT_ID"] = unquote(carried["lightning.rollout.id"])
        os.environ["LIGHTNING_TASK_ID"] = unquote(carried["lightning.task.id"])
        os.environ["LIGHTNING_SEED"] = self.headers["Lightning-Seed"]
        sys.stdin = io.StringIO(task)
        exec(agent, {})
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"Done.")
    def log_message(self, *_): pass

server = HTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


@pytest.mark.slow
def test_loop_improves_the_prompt_of_an_agent_behind_a_server(
    served: Path, tmp_path: Path, model: PromptServer
) -> None:
    file = write_loop(tmp_path, "behind", model.url, SMALL, tasks=50)
    (tmp_path / "server.py").write_text(SERVER)
    server = read_server(served)
    assert server is not None
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{server.http}"}
    words = [sys.executable, "-I", "-S", tmp_path / "server.py", tmp_path / "agent.py"]
    with background(
        *words,
        tmp_path / "flags.json",
        env={**os.environ, **endpoint},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        url = f"http://127.0.0.1:{process.stdout.readline().strip()}/"
        text = re.sub("command = .*", f'url = "{url}"', file.read_text())
        file.write_text(text)
        result = run(file, served)
    assert result.exit_code == 0, result.output
    assert true_success(live_text(tmp_path, "behind")) >= 0.75
    check_splits(served, "behind")
    wrong = (
        "SELECT t.run_id, t.arm AS asked, a.arm FROM attempts AS t LEFT JOIN arms AS a"
        " USING (rollout_id) WHERE run_id LIKE 'LOOP.%' AND t.arm IS DISTINCT FROM a.arm"
    )
    assert told("behind", served, wrong) == []


@pytest.mark.slow
def test_loop_that_has_worked_its_hours_stops_after_the_round(served: Path, tmp_path: Path) -> None:
    text = "[learn]\nrounds = 9\n[stop]\nhours = 0.00001\n[split]\nfinal = 0.3\n"
    with prompt_server(lambda _, number: proposal(f"Be kind, way {number}.")) as model:
        file = write_loop(tmp_path, "short", model.url, text, tasks=24)
        result = run(file, served)
        assert run(file, served).exit_code == result.exit_code  # it has ended: nothing runs
    assert result.exit_code == 3, result.output
    assert "Stopped after round 1: " in result.stdout
    assert " hours were worked, of 1e-05 that [stop] allows" in result.stdout
    assert "final tasks, which were read only now: " in result.stdout
    stages = ask(served, "SELECT stage FROM rounds WHERE loop = 'short' AND round > 1")
    assert stages == []


BAD = {
    "is not TOML": "[run",
    "lacks 'run'": "",
    "[run] lacks 'tasks'": "[run]\ncommand = ['x']",
    "has the unknown setting 'sample'. Did you mean 'samples'?": "[run]\nsample = 4",
    "'run.samples' is '4', but must be a whole number": "[run]\ntasks = 'x'\nsamples = '4'",
    "there is no part [prompts]": "[run]\ntasks = 'x'\ncommand = ['x']",
    "what has 'prompt'. Known: prompts, policy, weights": (
        "[run]\ntasks = 'x'\ncommand = ['x']\n[learn]\nwhat = ['prompt']"
    ),
    "needs one of command, url and serve": "[run]\ntasks = 'x'\n[policy]\nkey = 'k'\nflags = 'f'\n"
    "[learn]\nwhat = ['policy']",
    "[gate] reward_range must be two finite numbers, the least first": "[run]\ntasks = 'x'\n"
    "command = ['x']\n[policy]\nkey = 'k'\nflags = 'f'\n[learn]\nwhat = ['policy']\n"
    "[gate]\nreward_range = [1, 0]",
    "[run] failed_reward is -1, which is neither 0 nor 1, so the gate would refuse": "[run]\n"
    "tasks = 'x'\ncommand = ['x']\ngrade = 'g.py:f'\nfailed_reward = -1\n[policy]\nkey = 'k'\n"
    "flags = 'f'\n[learn]\nwhat = ['policy']",
    "[run] failed_reward is -1, which is outside [gate] reward_range, from 0 to 1": "[run]\n"
    "tasks = 'x'\ncommand = ['x']\ngrade = 'g.py:f'\nfailed_reward = -1\n[policy]\nkey = 'k'\n"
    "flags = 'f'\n[learn]\nwhat = ['policy']\n[gate]\nreward_range = [0, 1]",
    "[gate] alpha is 2, but must be between 0 and 1": "[run]\ntasks = 'x'\ncommand = ['x']\n"
    "[policy]\nkey = 'k'\nflags = 'f'\n[learn]\nwhat = ['policy']\n[gate]\nalpha = 2",
    "[hooks] after_round cannot be split into words: No closing quotation": (
        "[run]\ntasks = 'x'\ncommand = ['x']\n[policy]\nkey = 'k'\nflags = 'f'\n"
        "[learn]\nwhat = ['policy']\n[hooks]\nafter_round = \"notify 'me\""
    ),
}


# No option of a command takes these numbers.
OUTSIDE = {
    "[run] jobs = 0": "[run] jobs is 0, but must be at least 1",
    "[run] timeout = inf": "[run] timeout is inf, but must be at least 0.1 seconds",
    "[gate] least_gain = nan": "[gate] least_gain is nan, but must be a finite number",
    "[prompts] share = 2": "[prompts] share is 2, but must be between 0 and 1",
    "[prompts] candidates = 21": "[prompts] candidates is 21, but must be from 1 to 20",
    "[policy] exploration = 1": "[policy] exploration is 1, but must be from 0 to below 1",
    "[stop] hours = 0": "[stop] hours is 0, but must be above 0",
}


@pytest.mark.parametrize("setting", OUTSIDE)
def test_number_that_no_command_takes_is_told_before_anything_runs(
    tmp_path: Path, setting: str
) -> None:
    parts = {
        "[run]": "tasks = 'x'\ncommand = ['x']\n",
        "[prompts]": "key = 'k'\nflags = 'f'\nendpoint = 'e'\nmodel = 'm'\n",
        "[policy]": "key = 'k'\nflags = 'f'\n",
        "[learn]": "what = ['prompts', 'policy']\n",
        "[gate]": "",
        "[stop]": "",
    }
    part, line = setting.split(" ", 1)
    parts[part] += line
    (tmp_path / "loop.toml").write_text("".join(f"{n}\n{text}\n" for n, text in parts.items()))
    result = run(tmp_path / "loop.toml", tmp_path / "t.duckdb")
    assert result.exit_code == 1
    assert OUTSIDE[setting] in result.stderr
    assert not (tmp_path / "t.duckdb").exists()


@pytest.mark.parametrize("told", BAD)
def test_wrong_file_is_told_before_anything_runs(tmp_path: Path, told: str) -> None:
    (tmp_path / "loop.toml").write_text(BAD[told])
    result = run(tmp_path / "loop.toml", tmp_path / "t.duckdb")
    assert result.exit_code == 1
    assert told in result.stderr
    assert not (tmp_path / "t.duckdb").exists()


def test_flag_that_takes_no_prompt_is_told_before_anything_runs(tmp_path: Path) -> None:
    file = write_loop(tmp_path / "canary", "canary", "http://127.0.0.1:1")
    flags = tmp_path / "canary" / "flags.json"
    document = json.loads(flags.read_text())
    version = {"lightning.policy.version": "p1@0.1"}
    document["flags"]["canary-prompt"]["metadata"] = version
    flags.write_text(json.dumps(document))
    result = run(file, tmp_path / "t.duckdb")
    assert result.exit_code == 1
    assert "serves a canary of policy p1. Finish it first" in result.stderr
    assert not (tmp_path / "t.duckdb").exists()


def test_policy_that_a_killed_loop_had_written_is_recorded_as_promoted(tmp_path: Path) -> None:
    flags, tasks, store = (tmp_path / name for name in ("flags.json", "tasks.jsonl", "t.duckdb"))
    tasks.write_text("".join(json.dumps({"id": f"t{i}"}) + "\n" for i in range(20)))
    metadata = {"lightning.policy.version": "loop.1.policy"}
    shares = {"fractional": [["a", 90], ["b", 10]]}
    flag = {"state": "ENABLED", "variants": {"a": "A", "b": "B"}, "defaultVariant": "a"}
    flag |= {"targeting": shares, "metadata": metadata}
    flags.write_text(json.dumps({"flags": {"k": flag}}))
    (tmp_path / "loop.toml").write_text(
        f"[run]\ntasks = '{tasks}'\ncommand = ['x']\n[learn]\nwhat = ['policy']\n"
        f"[policy]\nkey = 'k'\nflags = '{flags}'\n"
    )
    config = read_config(tmp_path / "loop.toml")
    ended = Run("policy", {}, name="loop.1.policy").ended(
        outcome="passed", fingerprint=None, metrics={}, gate={}
    )
    with open_store(store) as opened:
        append(opened, "runs", ended)
    split = divide(read_tasks(tasks).tasks, config.split)
    loop = Loop(config, store, State.of(store, config.name), split, tmp_path, None)
    assert config.name == "loop"
    assert learn_shares(loop, 1)[0] == "promoted"
    assert ask(store, "SELECT outcome, artifact FROM runs") == [
        {"outcome": "promoted", "artifact": str(flags)}
    ]


def test_settings_of_a_loop_are_the_same_if_only_defaults_are_written_out(tmp_path: Path) -> None:
    file = tmp_path / "loop.toml"
    policy = "[policy]\nkey = 'k'\nflags = 'f'\n"

    def identity(text: str) -> str:
        file.write_text(text)
        return read_config(file).identity

    run = "[run]\ntasks = 't'\ncommand = ['x']\n"
    before = identity(f"[learn]\nwhat = ['policy']\n{run}{policy}")
    assert before == identity(
        f"[learn]\nwhat = ['policy']\nrounds = 7\nagents = []\n{run}samples = 1\njobs = 9\n{policy}"
        "[hooks]\nafter_round = 'x'\n[stop]\nhours = 1\n[gate]\nalpha = 0.05\n"
        "reward_range = [0, 5]\n"
    )
    assert before != identity(f"[learn]\nwhat = ['policy']\n{run}samples = 2\n{policy}")
    assert before != identity(f"[learn]\nwhat = ['policy']\nagents = ['a']\n{run}{policy}")
