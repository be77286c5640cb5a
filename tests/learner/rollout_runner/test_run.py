"""Whole runs: agents on tasks, their statuses and their rewards."""

import json
import sys
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.agent_runs import REWARDED, RIGHT, Agent, Tasks, rule
from support.stores import ask

from otel_lightning.learner import DataError
from otel_lightning.learner.cli import cli
from otel_lightning.learner.rollout_runner import Arms, Grading, Job, run_agent

FOUR = """
match task["id"]:
    case "failed": sys.exit("it broke")
    case "timeout": time.sleep(600)
    case "lost": os.kill(os.getpid(), 9)
print(task["question"])"""


def test_agent_runs_once_for_each_task_and_sample_and_the_same_call_runs_what_is_missing(
    served: Path, tmp_path: Path, tasks: Tasks, agent: Agent
) -> None:
    file = tasks(
        {"id": "a", "question": "x", "expected": "x", "metadata": {"level": 1}},
        {"id": "b", "question": "y", "expected": "z"},
    )
    command = agent(
        f"open({str(tmp_path / 'ran')!r}, 'a').write(os.environ['LIGHTNING_ROLLOUT_ID'] + '\\n')\n"
        "assert 'expected' not in task and 'metadata' not in task\n"
        "print(task['question'])"
    )
    grading = Grading(
        rule=rule(tmp_path, RIGHT.replace("right", "same_text")).replace(":right", ":same_text")
    )
    first = run_agent(served, Job(file, command, samples=2), grading)
    assert first.statuses == {"ok": 4}
    assert first.mean == 0.5
    more = run_agent(served, Job(file, command, samples=3), grading)
    assert (more.planned, more.done_before, more.mean) == (6, 4, 0.5)
    ran = (tmp_path / "ran").read_text().split()
    assert len(ran) == len(set(ran)) == 6
    rows = ask(served, f"FROM attempts WHERE run_id = '{first.run_id}'")
    assert {row["rollout_id"] for row in rows} == set(ran)
    assert Counter((row["task_id"], row["sample"]) for row in rows).most_common(1)[0][1] == 1
    assert {row["seed"] for row in rows if row["task_id"] == "a"} != {rows[0]["seed"]}
    (task,) = ask(served, "FROM tasks WHERE task_id = 'a' AND (metadata ->> '$.level') = '1'")
    assert (task["input"], task["expected"]) == ('{"question":"x"}', '"x"')


def test_ok_failed_timeout_and_lost_are_four_things_and_the_lost_has_no_reward(
    served: Path, tasks: Tasks, agent: Agent
) -> None:
    names = ["ok", "failed", "timeout", "lost"]
    file = tasks(*({"id": name, "question": name} for name in names))
    job = Job(file, agent(FOUR), name="four", timeout=10, retries=1)
    report = run_agent(served, job, Grading(by_exit_code=True))
    assert report.statuses == dict.fromkeys(names, 1)
    rows = ask(served, "FROM attempts WHERE run_id = 'four' ORDER BY task_id, attempt")
    assert [(row["task_id"], row["status"], row["attempt"]) for row in rows] == [
        ("failed", "failed", 0),
        ("lost", "lost", 0),
        ("lost", "lost", 1),
        ("ok", "ok", 0),
        ("timeout", "timeout", 0),
    ]
    assert rows[0]["errors"] == "it broke\n"
    assert rows[1]["reason"] == "it was ended by signal 9"
    rewards = {report.tasks[rollout]: value for rollout, value in report.rewards.items()}
    assert rewards == {"ok": 1, "failed": 0}
    forced = run_agent(served, job, Grading(by_exit_code=True, failed_reward=-1))
    assert sorted(forced.rewards.values()) == [-1, -1, 1]


def test_command_tells_why_attempts_were_lost_or_failed_and_which_tasks_have_no_id(
    served: Path, tasks: Tasks, agent: Agent
) -> None:
    file = tasks({"id": "lost", "n": 1}, {"n": 2}, {"n": 3})
    body = "os.kill(os.getpid(), 9) if 'id' in task and task['id'] == 'lost' else print('x' * 9999)"
    options = ["--retries", "1", "--max-output", "1000", "--exit-code-is-reward", "--name", "why"]
    place = ["--store", str(served), "--tasks", str(file)]
    result = CliRunner().invoke(
        cli, ["run", *place, *options, "--", *agent(f"{body}; time.sleep(9)")]
    )
    assert result.exit_code == 1
    assert "2 tasks have no id in the file, so a hash of the fields is the id." in result.stderr
    assert "3 rollouts have no recorded model call" in result.stderr
    assert "2 attempts lost: it was ended by signal 9." in result.stderr
    assert "2 attempts failed: it wrote more than the limit of --max-output." in result.stderr
    assert "1 rollout is missing. 1 of them was lost in each attempt:" in result.stderr
    assert "--rerun lost" in result.stderr


def test_grading_command_that_fails_on_a_rollout_is_no_reward_of_0(
    served: Path, tmp_path: Path, tasks: Tasks, agent: Agent
) -> None:
    file = tasks(*({"id": name, "question": name, "expected": [name]} for name in "abcd"))
    grader = tmp_path / "grader.py"
    grader.write_text(
        "import json, sys\n"
        "asked = json.load(sys.stdin)\n"
        "if asked['task_id'] == 'c': raise ValueError('no idea')\n"
        "if asked['task_id'] == 'd': print('NaN')\n"
        "elif asked['expected'] == ['a']: print('{\"score\": 0.5, \"explanation\": \"half\"}')\n"
        "else: print(int(asked['output'].strip() == asked['input']['question']))\n"
    )
    report = run_agent(
        served,
        Job(file, agent("print(task['question'])"), name="command"),
        Grading(command=[sys.executable, "-I", "-S", str(grader)]),
    )
    assert {report.tasks[one]: value for one, value in report.rewards.items()} == {"a": 0.5, "b": 1}
    assert any("ended with code 1" in p and "no idea" in p for p in report.problems)
    assert any("printed 'NaN', no number" in problem for problem in report.problems)
    (row,) = ask(
        served,
        "SELECT s.explanation, s.value FROM judgements s JOIN attempts a USING (rollout_id) "
        "WHERE run_id = 'command' AND a.task_id = 'a'",
    )
    assert row == {"explanation": "half", "value": 0.5}


def test_rule_that_raises_on_a_rollout_leaves_it_out_and_one_that_cannot_be_read_starts_nothing(
    served: Path, tmp_path: Path, tasks: Tasks, agent: Agent
) -> None:
    file = tasks({"id": "a", "question": "1"}, {"id": "b", "question": "one"})
    job = Job(file, agent("print(task['question'])"), name="raises")
    body = "def number(rollouts):\n    return rollouts['output'].str.strip_chars().cast(float)"
    report = run_agent(served, job, Grading(rule=rule(tmp_path, body).replace("right", "number")))
    assert list(report.rewards.values()) == [1.0]
    assert "InvalidOperationError" in report.problems[0]
    assert not (tmp_path / "never").exists()
    never = Job(file, agent(f"open({str(tmp_path / 'never')!r}, 'w')"), name="never")
    with pytest.raises(DataError, match="no function 'nothing'"):
        run_agent(served, never, Grading(rule=f"{tmp_path}/grade.py:nothing"))
    assert not (tmp_path / "never").exists()


def test_agent_that_cannot_work_is_not_run_on_all_tasks(
    served: Path, tmp_path: Path, tasks: Tasks, agent: Agent
) -> None:
    file = tasks(*({"id": str(i), "question": i} for i in range(100)))
    job = Job(file, agent("sys.exit('no module named openai')"), name="hopeless")
    with pytest.raises(DataError, match=r"first 20 attempts .* no module named openai"):
        run_agent(served, job)
    with pytest.raises(DataError, match=r"cannot be started: .*No such file.* after '--'"):
        run_agent(served, Job(file, [str(tmp_path / "agent")], name="absent"))


def test_run_without_a_reward_says_how_to_grade_it_without_running_again(
    tmp_path: Path, tasks: Tasks
) -> None:
    place = ["--store", f"{tmp_path}/new.duckdb", "--tasks", str(tasks({"id": "a"}, {"id": "b"}))]

    def run(*more: str) -> str:
        result = CliRunner().invoke(cli, ["run", *place, "--stdin", "none", *more, "--", "true"])
        assert result.exit_code == 0, result.output
        return result.stdout

    assert "No rollout has a reward. Grade them: give the same command with --grade" in run()
    graded = run("--exit-code-is-reward")
    assert "2 rollouts, 2 of them before this start." in graded
    assert "Mean reward 1.0000" in graded


def test_output_that_the_store_shortens_is_counted(tmp_path: Path, tasks: Tasks) -> None:
    """The limit counts characters: `ä` has two bytes."""
    store = tmp_path / "new.duckdb"
    file = tasks({"id": "whole", "times": 20_000}, {"id": "cut", "times": 20_001})
    words = ["sh", "-c", 'printf "ä%.0s" $(seq "$0")', "{times}"]
    report = run_agent(store, Job(file, words, stdin="none"), Grading(by_exit_code=True))
    assert report.shortened == 1
    outputs = {row["task_id"]: row["output"] for row in ask(store, "FROM attempts")}
    assert outputs == dict.fromkeys(("whole", "cut"), "ä" * 20_000)


def test_arms_run_on_the_same_tasks_and_seeds_and_are_compared(
    served: Path, tmp_path: Path, tasks: Tasks, agent: Agent
) -> None:
    flags = tmp_path / "flags.json"
    flag = {
        "state": "ENABLED",
        "variants": {"short": "Be short.", "long": "Be long.", "old": "Be."},
        "defaultVariant": "old",
        "targeting": {"fractional": [["short", 1], ["old", 99]]},
    }
    flags.write_text(json.dumps({"flags": {"prompt": flag, "other": flag}}))
    file = tasks(*({"id": str(i), "question": i} for i in range(12)))
    command = agent(
        "flag = json.load(open(os.environ['FLAGD_OFFLINE_FLAG_SOURCE_PATH']))['flags']['prompt']\n"
        "arm = flag['defaultVariant']\n"
        "assert 'targeting' not in flag\n"
        "assert flag['metadata']['lightning.propensity.' + arm] == 0.5\n"
        "sys.exit(arm == 'long' and int(task['id']) < 10)"
    )
    job = Job(file, command, name="arms", arms=Arms("prompt", flags, ["long", "short"]), jobs=2)
    report = run_agent(served, job, Grading(by_exit_code=True))
    rows = ask(served, "SELECT task_id, arm, seed, status FROM attempts WHERE run_id = 'arms'")
    assert len(rows) == 24
    assert len({(row["task_id"], row["seed"]) for row in rows}) == 12
    (compared,) = report.compare()
    assert (compared.base, compared.other, compared.pairs) == ("long", "short", 12)
    assert compared.gain == pytest.approx(10 / 12)
    assert compared.p_value == pytest.approx(2**-10)
    assert compared.passed
    assert json.loads(flags.read_text())["flags"]["prompt"] == flag
    wrong = Job(file, command, name="none", arms=Arms("prompt", flags, ["long", "longer"]))
    with pytest.raises(
        DataError, match=r"no variant 'longer' of 'prompt'\. Known: short, long, old"
    ):
        run_agent(served, wrong)


def test_arm_whose_bad_rollouts_crash_does_not_win_by_further_attempts(
    served: Path, tmp_path: Path, tasks: Tasks, agent: Agent
) -> None:
    flags = tmp_path / "flags.json"
    flag = {"state": "ENABLED", "variants": {"old": "", "new": ""}, "defaultVariant": "old"}
    flags.write_text(json.dumps({"flags": {"prompt": flag}}))
    file = tasks(*({"id": str(i), "question": i} for i in range(12)))
    # Both are right in the first half of the tasks. Elsewhere the new one kills its process.
    command = agent(
        "flag = json.load(open(os.environ['FLAGD_OFFLINE_FLAG_SOURCE_PATH']))['flags']['prompt']\n"
        "first = os.environ['LIGHTNING_ATTEMPT'] == '0'\n"
        "if flag['defaultVariant'] == 'new' and first and task['question'] >= 6:\n"
        "    os.kill(os.getpid(), 9)\n"
        "sys.exit(flag['defaultVariant'] == 'old' and task['question'] >= 6)"
    )
    job = Job(file, command, name="crash", arms=Arms("prompt", flags, ["old", "new"]), jobs=2)
    report = run_agent(served, job, Grading(by_exit_code=True))
    assert report.side("new", "new").repeated == {(str(i), 0) for i in range(6, 12)}
    assert report.side("old", "old").repeated == set()
    (compared,) = report.compare()
    assert compared.gain == 0.5
    (refusal,) = compared.refusals
    assert refusal.startswith("6 more rollouts of new than of old were attempted again")


def test_copies_of_a_task_count_as_one_task_with_more_samples(
    served: Path, tmp_path: Path, tasks: Tasks, agent: Agent
) -> None:
    flags = tmp_path / "flags.json"
    flag = {"state": "ENABLED", "variants": {"old": "", "new": ""}, "defaultVariant": "old"}
    flags.write_text(json.dumps({"flags": {"prompt": flag}}))
    file = tasks(*({"id": str(i), "question": i % 3} for i in range(12)))
    command = agent(
        "flag = json.load(open(os.environ['FLAGD_OFFLINE_FLAG_SOURCE_PATH']))['flags']['prompt']\n"
        "sys.exit(flag['defaultVariant'] == 'old')"
    )
    arms = Arms("prompt", flags, ["old", "new"])
    job = Job(file, command, name="copies", arms=arms, jobs=2, samples=2)
    (compared,) = run_agent(served, job, Grading(by_exit_code=True)).compare()
    assert (compared.pairs, compared.tasks, compared.gain) == (24, 3, 1.0)
    assert compared.p_value == 1 / 8


def test_reward_event_that_the_agent_sends_is_the_outcome_of_its_rollout(
    served: Path, tasks: Tasks, agent: Agent
) -> None:
    names = {"good": 1.0, "bad": 0.0, "silent": 0.5, "killed": 1.0}
    file = tasks(*({"id": name, "worth": worth} for name, worth in names.items()))
    job = Job(file, agent(REWARDED), name="events", retries=0)
    report = run_agent(served, job, Grading(reward="success"))
    assert report.statuses == {"ok": 3, "lost": 1}
    rewards = {report.tasks[one]: value for one, value in report.rewards.items()}
    assert rewards == {"good": 1.0, "bad": 0.0}  # no reward is not 0, and the lost has none
    other = run_agent(served, job, Grading(reward="speed"))
    assert sorted(other.rewards.values()) == [9.0, 9.0]


def test_task_that_is_expected_to_give_another_answer_is_stored_though_nothing_runs(
    served: Path, tmp_path: Path, tasks: Tasks, agent: Agent
) -> None:
    command = agent("print('new')")
    grading = Grading(
        rule=rule(tmp_path, RIGHT.replace("right", "mended")).replace("right", "mended")
    )
    means = []
    for expected in ("old", "new"):
        file = tasks({"id": "mended", "question": "x", "expected": expected})
        means.append(run_agent(served, Job(file, command, name="mended"), grading).mean)
    assert means == [0.0, 1.0]


@pytest.mark.parametrize(("reward", "told"), [("0.5", True), ("1", False)])
def test_run_of_arms_says_if_a_gate_would_ask_for_the_range_of_the_rewards(
    served: Path, tmp_path: Path, tasks: Tasks, reward: str, *, told: bool
) -> None:
    flags = tmp_path / "flags.json"
    flag = {"state": "ENABLED", "variants": {"a": "A", "b": "B"}, "defaultVariant": "a"}
    flags.write_text(json.dumps({"flags": {"prompt": flag}}))
    words = ["run", "--store", str(served), "--tasks", str(tasks({"id": "a"}, {"id": "b"}))]
    words += ["--key", "prompt", "--flags", str(flags), "--arm", "a", "--arm", "b"]
    words += ["--grade-command", f"echo {reward}", "--name", f"ranged-{told}", "--", "true"]
    result = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "on 2 pairs of 2 tasks: gain +0.0000" in result.stdout
    assert ("A gate would ask for --reward-range" in result.stdout) is told


def test_options_of_arms_have_no_effect_without_arms(tasks: Tasks, tmp_path: Path) -> None:
    for option, text in (("--key", "prompt"), ("--flags", str(tmp_path / "flags.json"))):
        words = ["run", "--tasks", str(tasks({"id": "a"})), option, text, "--", "true"]
        refused = CliRunner().invoke(cli, words)
        assert refused.exit_code == 2
        assert f"{option} has no effect without --arm" in refused.stderr
