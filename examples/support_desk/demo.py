"""The whole loop: an unchanged agent's traces become a better policy and better weights.

    python demo.py [--shuffle-rewards SEED]

Starts `lightning-ingest`, trains a small model from nothing, lets the agent work under
`opentelemetry-instrument`, learns from what was stored and from nothing else, and runs the same
agent on tasks that it never saw. With shuffled rewards, both gates must refuse.
"""

import argparse
import math
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from otel_lightning.collector.store import open_store

sys.path.append(str(Path(__file__).parents[1]))

from shared.commands import BIN, background, flagged, run, title

HERE = Path(__file__).parent
READY_SECONDS = 120
REFUSED = 3  # exit code: the gate said no
Z = 1.96  # 95 %

LOGGED_TASKS, LOGGED_ATTEMPTS = 150, 4
NEW_TASKS, NEW_ATTEMPTS = 150, 3
HELD_OUT = 0.5  # a gate that knows only the range of the rewards needs many tasks
WORKERS = "4"
LEARNING_RATE = 1e-3  # for a model this small; large ones take a hundredth of it

STORY = {
    "before": "before: base model, prompts at random",
    "policy": "after:  learned policy over prompts",
    "weights": "after:  learned weights, prompts at random",
}
SAME_WORDS = (
    "Some tickets have the same words but another case, so two warnings below do not apply here: "
    "a ticket is no copy of another one."
)
COUNTS = """
    SELECT (FROM spans SELECT count(*)) AS spans,
        (FROM llm_calls SELECT count(*)) AS model_calls,
        (FROM tool_calls SELECT count(*)) AS tool_calls,
        (FROM rollouts SELECT count(*)) AS rollouts,
        (FROM transitions SELECT count(*)) AS transitions
"""
QUESTIONS = {
    "What does each model cost?": """
        SELECT request_model, count(*) AS calls, sum(input_tokens) AS input_tokens,
            sum(output_tokens) AS output_tokens
        FROM llm_calls GROUP BY 1 ORDER BY 1""",
    "Which prompt works, and how sure are we, as attempts at one ticket are alike?": """
        WITH tickets AS (
            SELECT arm, count(*) AS n, sum(final_reward) AS won,
                sum(won) OVER w / sum(n) OVER w AS p
            FROM rollouts JOIN (SELECT DISTINCT rollout_id, arm FROM arms) USING (rollout_id)
            WHERE service_name = 'desk-log' GROUP BY arm, task_id WINDOW w AS (PARTITION BY arm)
        )
        SELECT arm, sum(n) AS rollouts, round(any_value(p), 3) AS success,
            round(1.96 * sqrt(sum((won - p * n) ** 2)) / sum(n), 3) AS plus_minus
        FROM tickets GROUP BY arm ORDER BY success DESC""",
    "Which tool calls precede failure?": """
        SELECT t.name AS tool, count(*) AS calls, round(avg(r.final_reward), 3) AS success
        FROM tool_calls t JOIN rollouts r USING (rollout_id)
        WHERE r.service_name = 'desk-log' GROUP BY 1 ORDER BY success""",
}


@dataclass(frozen=True, slots=True)
class Rate:
    """Successes of one stage, by task."""

    by_task: dict[str, list[float]]

    @property
    def n(self) -> int:
        """How many rollouts."""
        return sum(map(len, self.by_task.values()))

    @property
    def mean(self) -> float:
        """The success rate."""
        return sum(map(sum, self.by_task.values())) / self.n

    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % score interval of the rate, over tasks.

        Attempts at one task are alike, so they count as fewer: as many as would vary as much if
        they were independent.

        Source:
            Korn & Graubard, Confidence intervals for proportions with small expected number of
            positive counts (1998).
        """
        n, p = self.independent, self.mean
        centre, spread = p + Z**2 / (2 * n), Z * math.sqrt(p * (1 - p) / n + Z**2 / (4 * n**2))
        return (centre - spread) / (1 + Z**2 / n), (centre + spread) / (1 + Z**2 / n)

    @property
    def independent(self) -> float:
        """The number of independent rollouts whose rate would vary as much as this one."""
        tasks, p = len(self.by_task), self.mean
        # A rate is a ratio of sums over tasks, so its variance is that of their sums of deviations.
        squares = sum((sum(rewards) - p * len(rewards)) ** 2 for rewards in self.by_task.values())
        variance = squares * tasks / (tasks - 1) / self.n**2
        # If all failed or all succeeded, nothing tells how alike they are.
        return min(p * (1 - p) / variance, self.n) if variance else tasks

    def gain(self, before: "Rate") -> tuple[float, float, float]:
        """The difference to `before` over the same tasks, with its 95 % interval.

        Paired: the mean and the standard error of the tasks' own differences.
        """
        tasks = sorted(self.by_task.keys() & before.by_task.keys())
        means = [
            [sum(rate.by_task[task]) / len(rate.by_task[task]) for rate in (self, before)]
            for task in tasks
        ]
        differences = [new - old for new, old in means]
        mean = sum(differences) / len(tasks)
        variance = sum((d - mean) ** 2 for d in differences) / (len(tasks) - 1)
        spread = Z * math.sqrt(variance / len(tasks))
        return mean, mean - spread, mean + spread


@dataclass(frozen=True, slots=True)
class Demo:
    """A folder with everything that the demo makes, and where the ingester listens."""

    folder: Path
    collector: str

    @property
    def store(self) -> Path:
        """The store."""
        return self.folder / "traces.duckdb"

    def agent(self, stage: str, tasks: str, attempts: int, model: Path, flags: Path) -> None:
        """Serve a model, run the unchanged agent under OpenTelemetry, and grade its answers."""
        answers = self.folder / f"{stage}-answers.jsonl"
        with serving(model, self.folder) as url:
            environment = {
                "OPENAI_BASE_URL": url,
                "OPENAI_API_KEY": "none",
                "LIGHTNING_REQUEST_TOKEN_IDS": "true",
                **self.telemetry(f"desk-{stage}"),
            }
            agent = [str(BIN / "opentelemetry-instrument"), sys.executable, str(HERE / "agent.py")]
            options = {"tasks": self.folder / f"{tasks}.jsonl", "answers": answers, "flags": flags}
            options |= {"attempts": attempts, "workers": WORKERS}
            run(*agent, *flagged(options), **environment)
        key = self.folder / f"{tasks}-key.jsonl"
        grade = {"answers": answers, "key": key}
        run(sys.executable, str(HERE / "grade.py"), *flagged(grade), **self.telemetry("grader"))
        self.settle()

    def settle(self) -> None:
        """Wait until all that was received is stored and read."""
        run(str(BIN / "lightning-ingest"), "derive", "--store", str(self.store), quiet=True)

    def telemetry(self, service: str) -> dict[str, str]:
        """The OTEL_* variables: all that an agent needs to be traced."""
        return {
            "OTEL_SERVICE_NAME": service,
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{self.collector}",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_METRICS_EXPORTER": "none",
            "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "httpx,urllib3,requests",
        }

    def learn(self, command: str, *flags: str, **options: object) -> bool:
        """Run one `lightning-learn` command; False if its gate said no."""
        learn = [str(BIN / "lightning-learn"), command, *flags]
        options |= {"store": self.store}
        return run(*learn, *flagged(options), allowed=(0, REFUSED)) == 0

    def ask(self, sql: str) -> list[dict[str, Any]]:
        """Ask the store, through the ingester that holds it."""
        with open_store(self.store) as store:
            return store.query(sql).to_pylist()

    def rate(self, stage: str) -> Rate:
        """The rewards of one stage, by task."""
        by_task: dict[str, list[float]] = {}
        rows = self.ask(
            "SELECT task_id, coalesce(final_reward, 0) AS reward FROM rollouts "
            f"WHERE service_name = 'desk-{stage}' AND task_id IS NOT NULL"
        )
        for row in rows:
            by_task.setdefault(row["task_id"], []).append(row["reward"])
        return Rate(by_task)


def main() -> None:
    """Run the demo; exit code 1 without a gain, or if a gate passed the control."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "--shuffle-rewards", type=int, metavar="SEED", help="the negative control, with this seed"
    )
    parser.add_argument("--folder", type=Path, default=Path(".demo"))
    options = parser.parse_args()
    shutil.rmtree(options.folder, ignore_errors=True)
    options.folder.mkdir(parents=True)
    started = time.monotonic()
    with ingesting(options.folder) as address:
        demo = Demo(options.folder, address)
        gates_passed = log_and_learn(demo, shuffle=options.shuffle_rewards)
        right = evaluate(demo, gates_passed, is_control=options.shuffle_rewards is not None)
        show(demo)
        reports(demo)
    how_to_look(demo)
    print(f"\nIt took {time.monotonic() - started:.0f} s. Its files are in {options.folder}/.")
    sys.exit(0 if right else 1)


def log_and_learn(demo: Demo, *, shuffle: int | None) -> dict[str, bool]:
    """Make a model, let the agent work, and learn; which of the two learners passed its gate."""
    folder, flags = demo.folder, demo.folder / "flags.json"
    shutil.copy(HERE / "flags.json", flags)
    shutil.copy(flags, folder / "learned-flags.json")
    title("1. A small model, trained from nothing to be mediocre")
    run(sys.executable, str(HERE / "model.py"), "--output", str(folder / "base-model"))
    make_tasks(folder, "logged", LOGGED_TASKS, "train")
    make_tasks(folder, "new", NEW_TASKS, "held-out")
    title("2. The agent works, unchanged, under opentelemetry-instrument")
    demo.agent("log", "logged", LOGGED_ATTEMPTS, folder / "base-model", flags)
    title(
        "3. Learning from what was stored" + ("" if shuffle is None else ", with shuffled rewards")
    )
    control = {} if shuffle is None else {"shuffle-rewards": shuffle}
    demo.learn("transitions", **{"held-out": HELD_OUT}, **control)
    flag_file = {
        "key": "support-prompt",
        "flags": flags,
        "output": folder / "learned-flags.json",
        "reward-range": "0,1",
        "held-out": HELD_OUT,
    }
    fine_tuning = {
        "algorithm": "rft",
        "model": folder / "base-model",
        "output": folder / "learned-model",
        "learning-rate": LEARNING_RATE,
        "batch-size": 64,
    }
    policy = demo.learn("policy", "--promote", **flag_file, **control)
    print(SAME_WORDS, flush=True)
    return {
        "policy": policy,
        "weights": demo.learn("weights", **fine_tuning),
    }


def evaluate(demo: Demo, gates_passed: dict[str, bool], *, is_control: bool) -> bool:
    """Run the same agent on new tasks, before and after; print the table."""
    folder, flags = demo.folder, demo.folder / "flags.json"
    title(f"4. The same agent on {NEW_TASKS} tasks that it never saw")
    base = folder / "base-model"
    demo.agent("before", "new", NEW_ATTEMPTS, base, flags)
    demo.agent("policy", "new", NEW_ATTEMPTS, base, folder / "learned-flags.json")
    demo.agent("weights", "new", NEW_ATTEMPTS, folder / "learned-model", flags)
    rates = {stage: demo.rate(stage) for stage in STORY}
    title("Success on new tasks, with 95 % intervals")
    gains = {}
    for stage, rate in rates.items():
        low, high = rate.interval()
        line = f"{STORY[stage]:<45} {rate.mean:6.1%} [{low:6.1%}, {high:6.1%}] of {rate.n}"
        if stage != "before":
            gains[stage] = rate.gain(rates["before"])
            gain, low_gain, high_gain = gains[stage]
            line += f"   gain {gain:+.1%} [{low_gain:+.1%}, {high_gain:+.1%}]"
            line += "" if gates_passed[stage] else "   (the gate refused it)"
        print(line)
    low_bounds = [bound for _, bound, _ in gains.values()]
    return verdict_of_control(low_bounds, gates_passed) if is_control else verdict(low_bounds)


def verdict(low_bounds: Sequence[float]) -> bool:
    """Say whether the gains are real."""
    real = all(bound > 0 for bound in low_bounds)
    yes, no = (
        "Both gains are real: their intervals exclude 0.",
        "Not every interval excludes 0: no gain is shown.",
    )
    print(f"\n{yes if real else no}")
    return real


def verdict_of_control(low_bounds: Sequence[float], gates_passed: dict[str, bool]) -> bool:
    """Say whether the gates refused what was learned from shuffled rewards.

    The prompts of a refused policy are those of before, so only chance tells its line from the
    base. A refused model is another one than the base, and may be better or worse: an interval over
    tasks does not hold the chance of the shuffle.
    """
    passed = [stage for stage, passed in gates_passed.items() if passed]
    if passed:
        print(
            f"\nThe rewards were shuffled, yet the gate of the {' and the '.join(passed)} passed. "
            "A gate may err in one of twenty cases: if it passes again with other seeds, do not "
            "trust the gains without shuffling."
        )
        return False
    print("\nThe rewards were shuffled, and both gates refused, as they must.")
    if any(bound > 0 for bound in low_bounds):
        print(
            "A gain above excludes 0 all the same, but no reward taught it: a model that trains on "
            "its own answers gives the likelier ones more often, and these are right more often."
        )
    return True


def show(demo: Demo) -> None:
    """Print what is in the store, and three questions to it."""
    title("What is in the store")
    print("   ".join(f"{name} {count:,}" for name, count in demo.ask(COUNTS)[0].items()))
    for question, sql in QUESTIONS.items():
        title(question)
        command = " ".join(sql.split())
        print(f'$ {relative(BIN)}/lightning-ingest sql --store {demo.store} "{command}"')
        run(str(BIN / "lightning-ingest"), "sql", command, "--store", str(demo.store))


def reports(demo: Demo) -> None:
    """Write a report about each of the two learners, and say where."""
    title("Reports to look at in a browser")
    for command in ("policy", "weights"):
        demo.learn("report", run=command, output=demo.folder / f"{command}-report.html")


def how_to_look(demo: Demo) -> None:
    """Print the commands that show the rollouts on the page."""
    title("Look at each rollout in a browser: give the second command in another terminal")
    for command in ("", "open "):
        print(f"$ {relative(BIN)}/lightning-ingest {command}--store {demo.store}")


def relative(folder: Path) -> Path:
    """Return a folder as it can be typed here."""
    current = Path.cwd()
    return folder.relative_to(current) if folder.is_relative_to(current) else folder


def make_tasks(folder: Path, name: str, count: int, split: str) -> None:
    """Write tasks and, beside them, the answers that the agent must not see."""
    files = {"output": folder / f"{name}.jsonl", "answers-key": folder / f"{name}-key.jsonl"}
    options = {"count": count, "split": split, **files}
    run(sys.executable, str(HERE / "tasks.py"), *flagged(options))


@contextmanager
def ingesting(folder: Path) -> Iterator[str]:
    """Run `lightning-ingest` on free ports; give the address of its HTTP receiver."""
    options = {"store": folder / "traces.duckdb", "http": "127.0.0.1:0", "grpc": "127.0.0.1:0"}
    with background(str(BIN / "lightning-ingest"), *flagged(options)) as process:
        while True:
            line = process.stdout.readline() if process.stdout else ""
            if "http://" in line:
                break
            if not line:
                sys.exit("demo.py: lightning-ingest did not start; its message is above")
        print(line.strip())
        yield line.split("http://")[1].split(",")[0]


@contextmanager
def serving(model: Path, folder: Path) -> Iterator[str]:
    """Serve a model; give its base URL."""
    port_file = folder / "port"
    port_file.unlink(missing_ok=True)
    options = {"model": model, "port": 0, "port-file": port_file}
    with background(str(BIN / "lightning-learn"), "serve", *flagged(options)) as process:
        deadline = time.monotonic() + READY_SECONDS
        while not port_file.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit("demo.py: the model server did not start; its message is above")
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port_file.read_text().strip()}/v1"


if __name__ == "__main__":
    main()
