"""Models compared by running an agent with each."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from support import traced_agent
from support.desk_bandit import ACTIONS, REQUESTS
from support.running import finish, serving
from support.stores import ask
from support.untrained import taught, untrained

from otel_lightning.learner import DataError
from otel_lightning.learner.rollout_runner import Grading, Job
from otel_lightning.learner.rollout_runner.compare_models import Trial, evaluate_models

Tasks = Callable[..., Path]
Agent = Callable[[str], list[str]]


@contextmanager
def model(answer: Callable[[str, float], tuple[str, str, int]]) -> Iterator[str]:
    """Serve a model that answers a question by a function; yield its base URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            text, finish, tokens = answer(body["q"], body["temperature"])
            data = json.dumps({"text": text, "finish": finish, "tokens": tokens}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as url:
        yield f"{url}/v1"


def sometimes(question: str, _temperature: float) -> tuple[str, str, int]:
    return ("right" if int(question) % 2 == 0 else "wrong"), "stop", 10


def always(_question: str, _temperature: float) -> tuple[str, str, int]:
    return "right", "stop", 11


def always_but_cut_off(_question: str, _temperature: float) -> tuple[str, str, int]:
    return "right", "length", 30


def always_but_not_greedy(_question: str, temperature: float) -> tuple[str, str, int]:
    return ("right" if temperature else "wrong"), "stop", 10


@pytest.fixture
def job(tasks: Tasks, agent: Agent) -> Callable[[str], Job]:
    file = tasks(*({"id": f"t{i}", "question": str(i), "expected": "right"} for i in range(12)))
    return lambda name: Job(file, agent(traced_agent.ASKING), name=name)


def right(folder: Path, name: str) -> Grading:
    """A rule with a name of its own, since tests share a store."""
    (folder / f"{name}.py").write_text(
        f"def {name}(rollouts):\n"
        "    return (rollouts['output'].str.strip_chars() == rollouts['expected']).cast(float)\n"
    )
    return Grading(rule=f"{folder}/{name}.py:{name}")


def command(store: Path, job: Job, rule: str, *models: str) -> list[str]:
    """The command that compares models, up to the agent."""
    words = [sys.executable, "-m", "otel_lightning.learner", "evaluate", "--store", str(store)]
    words += ["--tasks", str(job.tasks), "--split", "all", "--grade", rule]
    words += ["--name", job.name] if job.name else []
    return words + [word for name in models for word in ("--model", name)]


@pytest.mark.slow
def test_better_model_passes_and_models_without_gain_or_of_worse_form_are_refused(
    served: Path, tmp_path: Path, job: Callable[[str], Job]
) -> None:
    with (
        model(sometimes) as base,
        model(always) as better,
        model(always_but_cut_off) as cut_off,
        model(sometimes) as same,
    ):
        trial = Trial([base, better, cut_off, same], greedy=False)
        grading = right(tmp_path, "compared")
        verdicts, reports = evaluate_models(served, job("compared"), grading, trial)
        # All has run already, so this only compares again.
        again = command(served, job("compared"), str(grading.rule), base, better)
        process = finish(
            *again, "--no-greedy", "--least-gain", "0.6", "--", *job("compared").command
        )
        again += ["--no-greedy", "--reward-range", "-10,1"]
        wide = finish(*again, "--", *job("compared").command)
    passed, refused, no_gain = verdicts
    assert passed.passed, passed.refusals
    found = passed.gains["serving"]
    assert (found.pairs, found.test) == (12, "McNemar's exact test")
    assert found.gain == pytest.approx(6 / 12)
    assert found.p_value == pytest.approx(2**-6)
    assert passed.lengths == (10, 11)
    assert set(refused.refusals) == {
        "format: not cut off in 0.0% of the rollouts, 100.0% before",
        "format: 30 output tokens per rollout, 10 before",
    }
    assert "serving: the gain is at least +0.0000" in no_gain.refusals[0]
    assert len(reports) == 4
    assert process.returncode == 3, process.stderr
    assert "serving: the gain is at least" in process.stderr
    assert "not above 0.6" in process.stderr
    assert "1 other comparison was judged by the same tasks before" in process.stderr
    assert wide.returncode == 3, wide.stderr
    assert "confidence for rewards in [-10, 1], not above 0" in wide.stderr
    rows = ask(served, "SELECT outcome FROM runs WHERE command = 'evaluate'")
    assert "passed" in {row["outcome"] for row in rows}


@pytest.mark.slow
def test_model_that_is_worse_when_greedy_is_refused_and_exits_with_3(
    served: Path, tmp_path: Path, job: Callable[[str], Job]
) -> None:
    chosen = job("greedy")
    with model(sometimes) as base, model(always_but_not_greedy) as other:
        words = command(served, chosen, str(right(tmp_path, "greedy").rule), base, other)
        process = finish(*words, "--", *chosen.command)
    assert process.returncode == 3, process.stderr
    assert "By running, serving:" in process.stdout
    assert "greedy: it loses 0.5000 beyond chance" in process.stderr


@pytest.mark.slow
def test_model_that_wins_by_running_is_promoted_and_one_that_does_not_is_refused(
    served: Path, tmp_path: Path, tasks: Tasks, agent: Agent, tokenizer: Any
) -> None:
    models = tmp_path / "models"
    base, better, same = (models / name for name in ("base", "better", "same"))
    first = untrained(tmp_path / "untrained", tokenizer)
    taught(base, first, tokenizer, ACTIONS)
    taught(better, first, tokenizer, ["right"])
    shutil.copytree(base, same)

    def promote(*options: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-m", "otel_lightning.learner", "promote", "--store", str(served)]
        return finish(*words, *options)

    live = models / "live"
    assert promote("--model", str(base), "--without-gate").returncode == 0
    assert "No gate has judged" in promote("--model", str(better)).stderr
    questions = [f"{REQUESTS[i % 4]} {i}" for i in range(16)]
    file = tasks(
        *(
            {"id": f"t{i}", "question": text, "expected": "right", "model": "base"}
            for i, text in enumerate(questions)
        )
    )
    chosen = Job(file, agent(traced_agent.CHATTING))
    rule = str(right(tmp_path, "said").rule)
    words = command(served, chosen, rule, str(live), str(better), str(same))
    process = finish(*words, "--no-greedy", "--", *chosen.command)
    assert process.returncode == 0, process.stderr
    assert f"The gate passed '{better}'." in process.stdout
    refused = promote("--model", str(same))
    assert refused.returncode == 3
    assert f"The gate by running refused '{same}'" in refused.stderr
    assert live.resolve() == base
    promoted = promote("--model", str(better))
    assert promoted.returncode == 0, promoted.stderr
    assert live.resolve() == better
    rows = ask(served, f"SELECT gate FROM model_promotions WHERE after = '{better}'")
    assert rows == [{"gate": "by running"}]
    # The pointer leads to another model now, whose rollouts are not those of the former one.
    words = command(served, chosen, rule, str(live), str(same))
    again = finish(*words, "--no-greedy", "--served-name", "base", "--", *chosen.command)
    assert again.returncode == 3, again.stdout
    assert "16 of 32 rollouts were run before this start." in again.stdout
    assert f"{live} 1.0000, " in again.stdout


def test_folder_that_is_no_model_is_refused_before_the_other_one_is_run(
    served: Path, tmp_path: Path, job: Callable[[str], Job]
) -> None:
    trial = Trial(["http://127.0.0.1:9/v1", "nowhere"])
    with pytest.raises(DataError, match="'nowhere' is neither a model's folder nor"):
        evaluate_models(served, job("no"), Grading(), trial)
    link = tmp_path / "live"
    link.symlink_to(tmp_path, target_is_directory=True)
    for same in (["nowhere"], [str(tmp_path), str(link)]):
        with pytest.raises(DataError, match="two different models"):
            evaluate_models(served, job("no"), Grading(), Trial(same))


def test_reward_of_failed_rollouts_that_no_gate_takes_is_refused_before_a_model_is_run(
    served: Path, job: Callable[[str], Job]
) -> None:
    trial = Trial(["http://127.0.0.1:9/v1", "http://127.0.0.1:9/v2"])
    with pytest.raises(DataError, match="--failed-reward is -1, which is neither 0 nor 1"):
        evaluate_models(served, job("no"), Grading(by_exit_code=True, failed_reward=-1.0), trial)
