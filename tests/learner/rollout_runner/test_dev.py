"""`--dev`: each link of the chain, and the first broken one."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from support import traced_agent

from otel_lightning.learner.cli import cli
from otel_lightning.learner.rollout_runner import Grading, Job
from otel_lightning.learner.rollout_runner.dev import Link, check_chain

Agent = Callable[[str], list[str]]
COMPARING = "(rollouts['output'].str.strip_chars() == rollouts['expected']).cast(float)"
NUMBERS = (
    "(rollouts['output'].str.strip_chars().cast(float) == rollouts['expected'].cast(float))"
    ".cast(float)"
)
NAMED = "'lightning.rollout.id': os.environ['LIGHTNING_ROLLOUT_ID'],"


@pytest.fixture
def chain(
    tmp_path: Path, tasks: Callable[..., Path], agent: Agent
) -> Callable[[str, str], list[Link]]:
    """Check the chain of an agent and the body of a rule."""

    def check(body: str, rule: str) -> list[Link]:
        rows = ({"id": f"t{i}", "question": f"{i}", "expected": f"{i}"} for i in range(3))
        (tmp_path / "grade.py").write_text(f"def right(rollouts):\n    return {rule}\n")
        grading = Grading(rule=f"{tmp_path}/grade.py:right")
        return list(check_chain(Job(tasks(*rows), agent(body), timeout=5), grading))

    return check


@pytest.mark.slow
def test_whole_chain_holds_and_says_what_is_not_checked(
    chain: Callable[[str, str], list[Link]],
) -> None:
    links = {link.name: link for link in chain(traced_agent.ANSWERING, COMPARING)}
    assert {name: link.holds for name, link in links.items()} == {
        "process": True,
        "trace": True,
        "model calls": True,
        "task id": True,
        "arms": None,
        "token ids": None,
        "reward": True,
        "wrong answer": True,
        "transitions": True,
    }
    assert "LIGHTNING_REQUEST_TOKEN_IDS" in links["token ids"].remedy


@pytest.mark.slow
def test_grader_that_reads_numbers_is_given_the_number_of_another_task(
    chain: Callable[[str, str], list[Link]],
) -> None:
    links = {link.name: link for link in chain(traced_agent.ANSWERING, NUMBERS)}
    assert str(links["wrong answer"]) == "ok     wrong answer: scores lower in 2 of 2 rollouts."


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "rule", "name", "says"),
    [
        ("sys.exit('no key')", COMPARING, "process", "no key"),
        ("print(task['question'])", COMPARING, "trace", "Install otel-lightning"),
        ("time.sleep(60)", COMPARING, "process", "--timeout"),
        (
            f"{traced_agent.TRACING}if task['id'] == 't0': trace('0', '0', 'stop', 1, 1)",
            COMPARING,
            "trace",
            "os._exit",
        ),
        (
            f"os.environ['LIGHTNING_ROLLOUT_ID'] = 'mine'\n{traced_agent.ANSWERING}",
            COMPARING,
            "rollout id",
            "LIGHTNING_ROLLOUT_ID",
        ),
        (traced_agent.ANSWERING.replace(NAMED, ""), COMPARING, "rollout id", "attribute"),
        (
            traced_agent.ANSWERING.replace("'gen_ai.", "'other."),
            COMPARING,
            "model calls",
            "opentelemetry-instrumentation-anthropic",
        ),
        (
            f"os.environ['LIGHTNING_TASK_ID'] = 'mine'\n{traced_agent.ANSWERING}",
            COMPARING,
            "task id",
            "LIGHTNING_TASK_ID",
        ),
        (traced_agent.ANSWERING, "rollouts['exit_code'].replace(0, None)", "reward", "no score"),
        (traced_agent.ANSWERING, "rollouts['exit_code'] + 1.0", "wrong answer", "`expected`"),
        (traced_agent.ANSWERING, f"1 - {COMPARING}", "wrong answer", "gives more"),
    ],
)
def test_first_broken_link_is_named_with_its_remedy(
    chain: Callable[[str, str], list[Link]], body: str, rule: str, name: str, says: str
) -> None:
    *before, broken = chain(body, rule)
    assert False not in {link.holds for link in before}
    assert (broken.name, broken.holds) == (name, False)
    assert says in str(broken)


def test_command_ends_with_1_at_a_broken_link_and_makes_no_store(
    tmp_path: Path, tasks: Callable[..., Path], agent: Agent
) -> None:
    file = tasks({"id": "a", "question": "1"})
    store = tmp_path / "mine.duckdb"
    words = ["run", "--dev", "--store", str(store), "--tasks", str(file), "--exit-code-is-reward"]
    result = CliRunner().invoke(cli, [*words, "--", *agent("sys.exit(3)")])
    assert result.exit_code == 1
    assert "BROKEN process: ok 0, failed 1" in result.output
    assert not store.exists()
