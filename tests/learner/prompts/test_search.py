"""`--search gepa`: a search with real rollouts, and each of GEPA's faults that is guarded."""

import json
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result
from gepa.core.adapter import GEPAAdapter
from support import running
from support.prompt_server import (
    KINDS,
    RULES,
    UNKNOWN,
    PromptServer,
    Reply,
    Script,
    learns_rules,
    prompt_server,
    proposal,
    true_success,
)
from support.searched_prompt import FIRST, KEY, first_prompt

from otel_lightning.learner import DataError
from otel_lightning.learner.cli import cli
from otel_lightning.learner.prompts.logged.records import Record
from otel_lightning.learner.prompts.logged.rollouts import Window
from otel_lightning.learner.prompts.proposals.ask import Proposer
from otel_lightning.learner.prompts.proposals.plan import Proposed, Request
from otel_lightning.learner.prompts.propose import propose_prompts
from otel_lightning.learner.prompts.search.record import Evaluation, SearchRecord
from otel_lightning.learner.prompts.search.search import Adapter, Evaluated, Search, searching
from otel_lightning.learner.rollout_runner import Task
from otel_lightning.learner.score.judges.endpoint import Endpoint

if TYPE_CHECKING:
    from conftest import Traces

Serve = Callable[[Script], PromptServer]
TASKS = [Task(f"t{i}", {"kind": KINDS[i % 5]}) for i in range(40)]


class World:
    """Runs an agent of the world of five kinds, and counts its rollouts."""

    def __init__(self, success: Callable[[str, str], float] | None = None) -> None:
        self.rollouts, self.success = 0, success or self.by_rules
        self.rng = random.Random(0)  # noqa: S311 - sampling, not cryptography

    @staticmethod
    def by_rules(prompt: str, kind: str) -> float:
        return 0.9 if f"{kind}: {RULES[kind]}." in prompt else UNKNOWN

    def __call__(self, tasks: Sequence[Task], value: Any, _: int) -> Evaluated:
        self.rollouts += len(tasks)
        rewards, records = {}, {}
        for task in tasks:
            kind = str(task.fields["kind"])
            right = self.rng.random() < self.success(value, kind)
            rewards[task.task_id] = float(right)
            said = {"outcome": "succeeded" if right else "failed", "input": f"My {kind}?"}
            why = {} if right else {"explanations": f"It is {RULES[kind]}."}
            records[task.task_id] = Record(task.task_id, json.dumps(said | why), (said["input"],))
        return Evaluated(rewards, records)


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as stack:
        yield lambda script: stack.enter_context(prompt_server(script))


@pytest.fixture
def flags(traces: "Traces", tmp_path: Path) -> Path:
    """A flag file, and a store with a few rollouts of its only variant."""
    path = tmp_path / "flags.json"
    first_prompt(traces, path)
    return path


def search(
    traces: "Traces",
    flags: Path,
    server: PromptServer,
    world: World | Search,
    budget: int = 200,
) -> Proposed:
    request = Request(
        Window(KEY), flags, cache=traces.path.with_suffix(".judge"), candidates=1, concurrency=1
    )
    proposer = Proposer(Endpoint(server.url, "writer", 1.0, retries=0))
    asking = searching(world if isinstance(world, Search) else Search(TASKS, budget, world))
    return propose_prompts(traces.path, request, proposer, asking)


def test_search_finds_a_better_prompt_within_its_budget(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    world = World()
    result = search(traces, flags, serve(learns_rules), world)
    (found,) = result.candidates
    assert true_success(str(found.value)) > UNKNOWN + 0.2
    assert 150 < world.rollouts <= 200
    assert found.name in json.loads(flags.read_text())["flags"][KEY]["variants"]
    reasons = [one.proposal.reason for one in result.judged if one.candidate]
    assert "on the tasks that chose it, so too high" in reasons[0]


@pytest.mark.parametrize("budget", [46, 47, 60, 71])
def test_budget_is_never_exceeded(traces: "Traces", flags: Path, serve: Serve, budget: int) -> None:
    world = World()
    search(traces, flags, serve(learns_rules), world, budget)
    assert 20 < world.rollouts <= budget


def test_budget_that_tries_no_prompt_is_refused_and_not_called_a_success() -> None:
    with pytest.raises(DataError, match=r"does not suffice to try one prompt.* at least 46"):
        searching(Search(TASKS, 45, World()))
    with pytest.raises(DataError, match="at least 6 training tasks"):
        searching(Search(TASKS[:4], 500, World()))


def test_adapter_is_one_of_gepas_own_so_that_its_proposals_are_asked_for(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    assert GEPAAdapter in Adapter.__mro__
    server = serve(learns_rules)
    search(traces, flags, server, World(), 80)
    assert server.requests


def test_model_that_fails_ends_the_search_with_its_error(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    world, before = World(), flags.read_text()
    with pytest.raises(DataError, match="gave no answer by model 'writer'"):
        search(traces, flags, serve(lambda *_: Reply("forbidden", None, 403)), world)
    assert world.rollouts <= 26  # the first iteration is the last
    assert flags.read_text() == before


BROKEN = [
    Reply("<think>hmm the user wants me to"),
    Reply("```\nYou answer the requests"),
    Reply('{"reason": "x", "prompt": "You answer', "length"),
    Reply("```Careful\nsecond line\n```"),
    proposal(FIRST),
    proposal("Be kind. " * 3000),
    proposal("Use the key sk-abcdefghijklmnop1234."),
]


def test_broken_answers_and_repetitions_never_enter_the_pool(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    world = World()
    result = search(traces, flags, serve(lambda _, n: BROKEN[n % len(BROKEN)]), world, 80)
    assert result.candidates == []
    assert len(result.judged) >= len(BROKEN)
    assert all(one.proposal.refused for one in result.judged)


def test_rollouts_without_a_reward_count_as_the_mean_of_the_others(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    class Forgetful(World):
        def __call__(self, tasks: Sequence[Task], value: Any, number: int) -> Evaluated:
            found = super().__call__(tasks, value, number)
            kept = {one: value for one, value in found.rewards.items() if one[-1] != "7"}
            return Evaluated(kept or dict(list(found.rewards.items())[:1]), found.records)

    assert search(traces, flags, serve(learns_rules), Forgetful(), 120).judged

    class Silent(World):
        def __call__(self, tasks: Sequence[Task], value: Any, number: int) -> Evaluated:
            return Evaluated({}, super().__call__(tasks, value, number).records)

    with pytest.raises(DataError, match="No rollout of the search has a reward"):
        search(traces, flags, serve(learns_rules), Silent(), 120)


def test_in_a_world_of_noise_the_claimed_score_is_not_believed(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    world = World(lambda *_: 0.5)
    result = search(traces, flags, serve(lambda _, n: proposal(f"Way {n}.")), world, 300)
    document = json.loads(flags.read_text())["flags"][KEY]
    assert result.candidates
    for one in result.candidates:  # a small share, and no promotion: the gate has not spoken
        assert dict(document["targeting"]["fractional"])[one.name] == 1000
    assert traces.ask("SELECT * FROM policies") == []


AGENT = """
import json, os, sys
flag = json.load(open(os.environ["FLAGD_OFFLINE_FLAG_SOURCE_PATH"]))["flags"]["support-prompt"]
sys.exit("twice" not in flag["variants"][flag["defaultVariant"]])
"""


def run_search(store: Path, flags: Path, url: str, *more: str) -> Result:
    where = ["--store", str(store), "--key", KEY, "--flags", str(flags)]
    asked = ["--endpoint", url, "--model", "m", "--candidates", "1", "--retries", "0", *more]
    return CliRunner().invoke(cli, ["prompts", *where, *asked], catch_exceptions=False)


def test_options_of_a_search_are_told_apart(traces: "Traces", flags: Path, tmp_path: Path) -> None:
    without = run_search(traces.path, flags, "http://x", "--search", "gepa")
    assert without.exit_code == 2
    assert "give --tasks FILE and -- AGENT" in without.stderr
    (tmp_path / "tasks.jsonl").write_text('{"id": 1}\n')
    tasks = ("--tasks", str(tmp_path / "tasks.jsonl"))
    lonely = run_search(traces.path, flags, "http://x", *tasks, "--", sys.executable)
    assert lonely.exit_code == 2
    assert "Add it." in lonely.stderr
    for option in (("--budget", "20"), ("--grade", "r.py:f"), ("--exit-code-is-reward",)):
        ignored = run_search(traces.path, flags, "http://x", *option)
        assert ignored.exit_code == 2
        assert f"{option[0]} has no effect without --search gepa" in ignored.stderr


def test_rollouts_of_another_way_of_an_earlier_start_count_against_the_budget(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    world = World()
    with_other = SearchRecord(evaluations=[Evaluation("other", 20), Evaluation("other", 3)])
    search(traces, flags, serve(learns_rules), Search(TASKS, 69, world, with_other))
    assert with_other.rollouts == world.rollouts + 23 <= 69

    spent = SearchRecord(evaluations=[Evaluation("other", 60)])
    with pytest.raises(DataError, match=r"69 rollouts is spent.* 60 of them .* larger --budget"):
        search(traces, flags, serve(learns_rules), Search(TASKS, 69, World(), spent))


def test_search_goes_on_with_the_prompt_that_it_began_with(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    class Watched(World):
        def __init__(self, last: int) -> None:
            super().__init__()
            self.last, self.values = last, list[Any]()

        def __call__(self, tasks: Sequence[Task], value: Any, number: int) -> Evaluated:
            if number == self.last:
                raise InterruptedError
            self.values.append(value)
            return super().__call__(tasks, value, number)

    record, server = SearchRecord(), serve(learns_rules)
    with pytest.raises(InterruptedError):
        search(traces, flags, server, Search(TASKS, 60, Watched(2), record))
    document = json.loads(flags.read_text())
    flag = document["flags"][KEY]
    flag["variants"]["second"] = "You answer everybody."
    flag["targeting"] = {"fractional": [["first", 1], ["second", 1]]}
    flags.write_text(json.dumps(document))
    for i in range(40):
        traces.call(f"s{i}")
        traces.arm(f"s{i}", "second", 0.5)
        traces.reward(f"s{i}", 1.0)
    traces.store()
    world = Watched(-1)
    search(traces, flags, server, Search(TASKS, 60, world, record))
    assert world.values[0] == FIRST
    # Without that record, the log says that the other one is better now.
    other = Watched(1)
    with pytest.raises(InterruptedError):
        search(traces, flags, server, Search(TASKS, 60, other))
    assert other.values == ["You answer everybody."]


def test_budget_holds_though_other_proposals_are_recorded_before_a_search_goes_on(
    traces: "Traces", flags: Path, serve: Serve
) -> None:
    class Recorded(World):
        def __init__(self) -> None:
            super().__init__()
            self.known: dict[tuple[int, str], Evaluated] = {}

        def __call__(self, tasks: Sequence[Task], value: Any, number: int) -> Evaluated:
            if (number, value) not in self.known:
                self.known[number, value] = super().__call__(tasks, value, number)
            return self.known[number, value]

    world, record = Recorded(), SearchRecord()
    fails = serve(lambda _, n: proposal(f"Way {n}.") if n < 2 else Reply("no", None, 403))
    with pytest.raises(DataError, match="gave no answer"):
        search(traces, flags, fails, Search(TASKS, 80, world, record))
    before = world.rollouts
    plain = Proposer(Endpoint(serve(lambda *_: proposal("Plain one.")).url, "writer", 1.0))
    cache = traces.path.with_suffix(".judge")
    propose_prompts(traces.path, Request(Window(KEY), flags, cache=cache, candidates=1), plain)
    again = serve(lambda _, n: proposal(f"Way {n + 2}."))
    assert search(traces, flags, again, Search(TASKS, 80, world, record)).judged
    assert before < world.rollouts == record.rollouts <= 80
    assert all(one.unused == 0 for one in record.evaluations)


@pytest.fixture
def searched(
    traces: "Traces", flags: Path, serve: Serve, tmp_path: Path
) -> Iterator[Callable[..., Result]]:
    """Search with an agent of a few lines, whose store an ingester serves."""
    server = serve(lambda _, n: proposal(f"Check twice, way {n}."))

    def command(agent: str, *options: str, tasks: int = 14) -> Result:
        (tmp_path / "agent.py").write_text(agent)
        rows = "".join(json.dumps({"id": f"t{i}", "kind": "refund"}) + "\n" for i in range(tasks))
        (tmp_path / "tasks.jsonl").write_text(rows)
        more = ["--search", "gepa", "--tasks", str(tmp_path / "tasks.jsonl"), *options]
        agent_words = ["--", sys.executable, "-I", "-S", str(tmp_path / "agent.py")]
        return run_search(traces.path, flags, server.url, *more, "--held-out", "0.1", *agent_words)

    with running.running(traces.path):
        yield command


@pytest.mark.slow
def test_agent_that_always_fails_is_named_with_its_last_words(
    searched: Callable[..., Result], traces: "Traces"
) -> None:
    broken = "import sys; sys.exit('no module named tools')"
    for tasks, said in ((14, "none ended well"), (60, "None of the first 20 attempts ended well")):
        failed = searched(broken, "--budget", "60", tasks=tasks)
        assert failed.exit_code == 1
        assert said in failed.stderr
        assert "The last one said: " in failed.stderr
        assert "no module named tools. Correct the agent" in failed.stderr
        assert "it begins a new search" in failed.stderr
        assert "grade" not in failed.stderr.lower()
        assert "--rerun" not in failed.stderr
    # The mended agent is run: what failed in the search before does not count as done.
    mended = searched("", "--budget", "60")
    assert "let the agent send rewards" in mended.stderr
    (found,) = traces.ask("SELECT count(*) AS n FROM attempts WHERE status = 'ok'")
    assert found["n"] > 0


@pytest.mark.slow
def test_grader_that_fails_is_named_and_its_rollouts_are_graded_by_the_next_start(
    searched: Callable[..., Result], traces: "Traces", tmp_path: Path
) -> None:
    grader = tmp_path / "grader.py"
    grader.write_text("import sys; sys.exit('the judge is away')")
    graded = ("--budget", "20", "--grade-command", f"{sys.executable} {grader}")
    failed = searched("", *graded)
    assert failed.exit_code == 1
    assert "ended well" in failed.stderr
    assert "the judge is away" in failed.stderr
    assert "Correct the grader" in failed.stderr
    before = traces.ask("SELECT rollout_id FROM attempts")
    grader.write_text("print(0)")
    again = searched("", *graded)
    assert f"{len(before)} rollouts of its budget of 20 began before" in again.stdout
    assert again.exit_code == 3
    assert len(before) < len(traces.ask("SELECT rollout_id FROM attempts")) <= 20


GRADER = """
from pathlib import Path
graded = Path(__file__).with_name("graded")
graded.open("a").write(".")
print(len(graded.read_text()))
"""
"""Grades each rollout better than the one before."""


@pytest.mark.slow
def test_after_a_completed_search_or_another_prompt_the_same_command_begins_anew(
    searched: Callable[..., Result], traces: "Traces", flags: Path, tmp_path: Path
) -> None:
    runs = "SELECT DISTINCT run_id FROM attempts"
    (tmp_path / "grader.py").write_text(GRADER)
    grader = f"{sys.executable} {tmp_path / 'grader.py'}"
    options = ("--budget", "20", "--grade-command", grader)
    tried = searched(AGENT, *options, "--dry-run")
    assert tried.exit_code == 0, tried.output
    ran, graded = traces.ask(runs), (tmp_path / "graded").read_text()

    # A dry run writes nothing, so the command after it writes what it found: no rollout is run
    # or graded once more.
    first = searched(AGENT, *options)
    assert "goes on: " in first.stdout
    assert first.exit_code == 0, first.output
    assert traces.ask(runs) == ran
    assert (tmp_path / "graded").read_text() == graded
    found = set(json.loads(flags.read_text())["flags"][KEY]["variants"]) - {"first"}
    assert found
    assert all(f"{name}: " in tried.stdout for name in found)

    second = searched(AGENT, *options)
    assert "goes on" not in second.stdout
    assert len(traces.ask(runs)) > len(ran)

    # A search in the middle, whose prompt is changed by hand.
    broken = searched("import sys; sys.exit()", "--budget", "20", "--grade-command", "false")
    assert "Correct the grader" in broken.stderr
    document = json.loads(flags.read_text())
    for name in document["flags"][KEY]["variants"]:
        document["flags"][KEY]["variants"][name] += " Be kind."
    flags.write_text(json.dumps(document))
    changed = searched("import sys; sys.exit()", "--budget", "20", "--grade-command", "false")
    assert "cannot go on, because its prompt was changed" in changed.stdout


@pytest.mark.slow
def test_command_runs_the_agent_with_each_prompt_and_stores_every_rollout(
    traces: "Traces", flags: Path, serve: Serve, tmp_path: Path
) -> None:
    (tmp_path / "agent.py").write_text(AGENT)
    rows = "".join(json.dumps({"id": f"t{i}", "kind": "refund"}) + "\n" for i in range(14))
    (tmp_path / "tasks.jsonl").write_text(rows)
    server = serve(lambda _, n: proposal(f"Check twice, way {n}."))
    ingester = running.start(traces.path)
    try:
        options = ["--search", "gepa", "--budget", "20", "--tasks", str(tmp_path / "tasks.jsonl")]
        agent = ["--", sys.executable, "-I", "-S", str(tmp_path / "agent.py")]
        graded = [*options, "--exit-code-is-reward", "--held-out", "0.1", *agent]
        result = run_search(traces.path, flags, server.url, *graded)
    finally:
        ingester.stop()
    assert result.exit_code == 0, result.output
    variants = json.loads(flags.read_text())["flags"][KEY]["variants"]
    assert variants["first"] == FIRST
    assert any("Check twice" in text for text in variants.values())
    runs = traces.ask("SELECT run_id, count(*) AS n FROM attempts GROUP BY run_id ORDER BY run_id")
    assert len(runs) >= 4  # the first prompt, both on three tasks, and the new one
    assert sum(row["n"] for row in runs) <= 20
