"""A search that is killed goes on with the same command, within one budget, to the same end."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support import running
from support.prompt_server import Reply, prompt_server, proposal
from support.searched_prompt import KEY, first_prompt
from support.traced_agent import TRACING

from otel_lightning.collector.store import open_store

if TYPE_CHECKING:
    from conftest import Traces

BUDGET = 44
# Whether it is right depends on the hash of the prompt and the task, and later prompts are better.
AGENT = f"""
import hashlib, json, os, signal, sys, time
{TRACING}
task = json.load(sys.stdin)
here = os.path.dirname(__file__)
flag = json.load(open(os.environ["FLAGD_OFFLINE_FLAG_SOURCE_PATH"]))["flags"]["support-prompt"]
prompt = flag["variants"][flag["defaultVariant"]]
with open(f"{{here}}/agents.log", "a") as file:
    file.write(os.environ["LIGHTNING_ROLLOUT_ID"] + "\\n")
victim = json.load(open(f"{{here}}/kill.json"))
if victim["agent"] and len(open(f"{{here}}/agents.log").readlines()) >= victim["agent"]:
    try:
        os.killpg(victim["group"], signal.SIGKILL)
    except ProcessLookupError:
        pass  # the other agent was faster
    signal.pause()
trace(task["question"], "I see.", "stop", 2, 1)
luck = hashlib.sha256((prompt + task["id"]).encode()).digest()[0]
sys.exit(luck > 90 + 30 * int("0" + "".join(filter(str.isdigit, prompt))))
"""


@dataclass
class Searched:
    """A folder with a store, a flag file, an agent and a model, and the search over them."""

    folder: Path
    store: Path
    url: str = ""
    answered: list[str] = field(default_factory=list)
    kill_when_asked: int | None = None
    """Number of given answers at which the search is killed while it waits for one."""

    def answer(self, _: dict[str, Any], __: int) -> Reply:
        if self.kill_when_asked == len(self.answered):
            self.kill_when_asked = None
            os.killpg(json.loads((self.folder / "kill.json").read_text())["group"], signal.SIGKILL)
            return Reply("too late", None, 500)
        self.answered.append(f"Way {len(self.answered)}.")
        return proposal(self.answered[-1])

    def search(self, *more: str, agent: int | None = None, asked: int | None = None) -> Any:
        """Search, and kill it when the agent starts for this time, or the model is asked."""
        self.kill_when_asked = asked
        options = {
            "--store": self.store,
            "--key": KEY,
            "--flags": self.folder / "flags.json",
            "--endpoint": self.url,
            "--model": "m",
            "--retries": 0,
            "--search": "gepa",
            "--budget": BUDGET,
            "--tasks": self.folder / "tasks.jsonl",
            "--held-out": 0.1,
        }
        words = [str(word) for pair in options.items() for word in pair]
        command = ["-m", "otel_lightning.learner", "prompts", *words, *more]
        with running.background(
            *(sys.executable, "-c", WAIT, *command, "--", *self.agent),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            told = json.dumps({"group": process.pid, "agent": agent})
            (self.folder / "kill.json").write_text(told)
            out, err = process.communicate("begin\n", timeout=running.LIMIT_S)
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    @property
    def agent(self) -> list[str]:
        return [sys.executable, "-I", "-S", str(self.folder / "agent.py")]

    @property
    def started(self) -> int:
        """Number of processes of the agent that were started."""
        return len((self.folder / "agents.log").read_text().splitlines())

    def ask(self, query: str) -> list[dict[str, Any]]:
        with open_store(self.store, read_only=True) as found:
            rows: list[dict[str, Any]] = found.query(query).to_pylist()
        return rows

    def ended(self) -> int:
        """Number of rollouts that ended; none may have ended twice."""
        rows = self.ask("SELECT run_id, task_id FROM attempts WHERE status <> 'lost'")
        assert len({tuple(row.values()) for row in rows}) == len(rows)
        return len(rows)

    def proposals(self) -> list[dict[str, Any]]:
        columns = "call, variant, text, reason, refused"
        return self.ask(f"SELECT {columns} FROM prompts ORDER BY created, call")

    def flag(self) -> dict[str, Any]:
        flag: dict[str, Any] = json.loads((self.folder / "flags.json").read_text())["flags"][KEY]
        return {"variants": flag["variants"], "targeting": flag["targeting"]}


# The search begins once its process group is known to those that kill it.
WAIT = """
import os, sys
sys.stdin.readline()
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
Make = Callable[..., Searched]


@pytest.fixture
def make(new_traces: "Callable[[], Traces]") -> Iterator[Make]:
    with ExitStack() as stack:

        def made(agent: str = AGENT) -> Searched:
            traces = new_traces()
            folder = traces.path.parent
            (folder / "agent.py").write_text(agent)
            (folder / "agents.log").touch()
            rows = [{"id": f"t{i}", "question": f"How is thing {i}?"} for i in range(14)]
            lines = "".join(json.dumps(row) + "\n" for row in rows)
            (folder / "tasks.jsonl").write_text(lines)
            first_prompt(traces, folder / "flags.json")
            stack.enter_context(running.running(traces.path))
            searched = Searched(folder, traces.path)
            searched.url = stack.enter_context(prompt_server(searched.answer)).url
            return searched

        yield made


GRADED = "--exit-code-is-reward"


@pytest.mark.slow
def test_killed_search_goes_on_within_its_budget_to_the_same_proposals(make: Make) -> None:
    whole, killed = make(), make()
    match = whole.search(GRADED)
    assert match.returncode == 0, match.stderr
    assert "goes on" not in match.stdout
    expected = whole.ended()
    assert 30 < expected == whole.started <= BUDGET
    assert sum(row["variant"] is not None for row in whole.proposals()) >= 1

    moments: list[dict[str, int]] = [
        {"agent": 1},  # nothing has ended
        {"agent": 5},  # in the middle of the first evaluation
        {"asked": 1},  # while the model is asked
        {"agent": 30},  # in the evaluation of a proposal
    ]
    for moment in moments:
        assert killed.search(GRADED, **moment).returncode == -signal.SIGKILL, moment
    again = killed.search(GRADED)
    assert again.returncode == 0, again.stderr
    assert "of its budget of 44 began before" in again.stdout

    assert killed.proposals() == whole.proposals()
    assert killed.answered == whole.answered
    assert killed.flag() == whole.flag()
    assert killed.ended() == expected
    # Only what the three kills in the middle of rollouts cut off, two at a time, was started twice.
    assert expected < killed.started <= expected + 2 * 3
