"""Five rounds of learning which prompt to serve for which question, and one poisoned grader.

    python demo_arms.py [--quick] [--folder .demo-arms]

Each round runs the unchanged agent on new questions, grades its answers, learns a policy over its
prompts and promotes it if the gate passes. Regret is what the prompts that were served lose
against the best prompt for each question, in probability of a right answer; the model's table
tells it, and nothing else reads that table. In one round a broken grader first flips every grade:
the gate must refuse. Exit code 1 if regret does not fall, or if a flipped round is promoted.
"""

import argparse
import json
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from shop_model import SUCCESS, kind_of, right_answer

from otel_lightning.collector.store import open_store

sys.path.append(str(Path(__file__).parents[1]))

from shared.commands import BIN, background, flagged, run, title

HERE = Path(__file__).parent
KEY = "shop-prompt"
READY_SECONDS = 60
REFUSED = 3  # exit code: the gate said no
EXPLORATION = (0.5, 0.3, 0.2, 0.1, 0.05)  # share of all traffic, by round: less as more is known
POISONED = 2  # the round that a broken grader grades first
QUESTIONS = 300  # a round


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table at the end."""

    name: str
    regret: float
    right: float
    exploration: float
    verdict: str


@dataclass(frozen=True, slots=True)
class Shop:
    """A folder with all that the demo makes, where the ingester listens and where the model."""

    folder: Path
    collector: str
    model: str

    @property
    def store(self) -> Path:
        """The store."""
        return self.folder / "traces.duckdb"

    @property
    def flags(self) -> Path:
        """The flag file that the agent reads and `promote` writes."""
        return self.folder / "flags.json"

    def telemetry(self, service: str) -> dict[str, str]:
        """The OTEL_* variables: all that an agent needs to be traced."""
        return {
            "OTEL_SERVICE_NAME": service,
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{self.collector}",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_METRICS_EXPORTER": "none",
            "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "httpx,urllib3,requests",
        }

    def work(self, number: int, count: int) -> list[dict[str, Any]]:
        """Let the unchanged agent answer new questions under OpenTelemetry."""
        questions_file, answers = (
            self.folder / f"{name}-{number}.jsonl" for name in ("asked", "answers")
        )
        questions_file.write_text(
            "".join(json.dumps(row) + "\n" for row in questions(number, count))
        )
        agent = [str(BIN / "opentelemetry-instrument"), sys.executable, str(HERE / "shop_agent.py")]
        options = {"questions": questions_file, "answers": answers, "flags": self.flags}
        environment = {"OPENAI_BASE_URL": self.model, "OPENAI_API_KEY": "none"}
        run(*agent, *flagged(options), **environment, **self.telemetry(f"round-{number}"))
        texts = {row["id"]: row["text"] for row in read_lines(questions_file)}
        return [row | {"question": texts[row["id"]]} for row in read_lines(answers)]

    def grade(self, answers: Sequence[Mapping[str, Any]], *, flipped: bool = False) -> float:
        """Send a grade for each answer, and return the share of right ones.

        A grade sent again replaces the one before it.
        """
        provider = LoggerProvider()
        exporter = OTLPLogExporter(endpoint=f"http://{self.collector}/v1/logs")
        provider.add_log_record_processor(
            BatchLogRecordProcessor(exporter, max_queue_size=2 * len(answers))
        )
        logger = provider.get_logger("grader")
        right = [answer["text"] == right_answer(answer["question"]) for answer in answers]
        for answer, is_right in zip(answers, right, strict=True):
            attributes = {
                "gen_ai.evaluation.name": "right_answer",
                "gen_ai.evaluation.score.value": float(is_right != flipped),
                "gen_ai.response.id": answer["response_id"],
                "lightning.task.id": answer["id"],
            }
            logger.emit(
                event_name="gen_ai.evaluation.result",
                timestamp=time.time_ns(),
                attributes=attributes,
            )
        provider.shutdown()
        run(str(BIN / "lightning-ingest"), "derive", "--store", str(self.store), quiet=True)
        return sum(right) / len(right)

    def learn(self, exploration: float) -> bool:
        """Learn from all rounds so far; return whether the gate passed."""
        half = {"held-out": 0.5}
        self.command("transitions", **half)
        return self.command(
            "policy",
            **self.flag,
            features=HERE / "features.toml",
            exploration=exploration,
            **{"reward-range": "0,1"} | half,
        )

    @property
    def flag(self) -> dict[str, object]:
        """The options that name the flag."""
        return {"key": KEY, "flags": self.flags}

    def command(self, name: str, **options: object) -> bool:
        """Run one `lightning-learn` command; return False if its gate refused."""
        words = flagged(options | {"store": self.store})
        learn = [str(BIN / "lightning-learn"), name, *words]
        return run(*learn, allowed=(0, REFUSED)) == 0

    def regret(self, number: int, answers: Sequence[Mapping[str, Any]]) -> float:
        """Compute what the served prompts of a round lose against the best ones, a question."""
        sql = f"""
            SELECT DISTINCT task_id, arm FROM arms JOIN rollouts USING (rollout_id)
            WHERE service_name = 'round-{number}'"""
        with open_store(self.store) as store:
            served = store.query(sql).to_pylist()
        texts = {answer["id"]: answer["question"] for answer in answers}
        losses = []
        for row in served:
            success = SUCCESS[kind_of(texts[row["task_id"]])]
            losses.append(max(success.values()) - success[row["arm"]])
        return sum(losses) / len(losses)


def questions(number: int, count: int) -> Iterator[dict[str, str]]:
    """Write new questions: every second one asks to count."""
    for i in range(count):
        item = number * 10_000 + i
        text = f"What does item {item} cost?"
        if i % 2:
            text = f"What do {item} items at {2 + i % 17} cost together?"
        yield {"id": f"{number}-{i:04}", "text": text}


def play(shop: Shop, explorations: Sequence[float]) -> list[Row]:
    """Run a round for each exploration, and poison one."""
    rows = []
    for number, exploration in enumerate(explorations, start=1):
        title(f"Round {number}: the agent answers {QUESTIONS} new questions")
        answers = shop.work(number, QUESTIONS)
        if number == POISONED:
            title(f"Round {number}, poisoned: a broken grader flips every grade")
            right = shop.grade(answers, flipped=True)
            regret = shop.regret(number, answers)
            outcome = round_of(shop, exploration)
            rows.append(Row(f"{number} poisoned", regret, right, exploration, outcome))
            title(f"Round {number} again: the same answers, graded rightly")
        right = shop.grade(answers)
        regret = shop.regret(number, answers)
        outcome = round_of(shop, exploration)
        rows.append(Row(str(number), regret, right, exploration, outcome))
    return rows


def round_of(shop: Shop, exploration: float) -> str:
    """Learn, and promote if the gate passes; return what became of it."""
    before = shop.flags.read_bytes()
    if shop.learn(exploration):
        shop.command("promote", **shop.flag)
        return "promoted"
    return "refused" if shop.flags.read_bytes() == before else "refused, but the file changed"


def verdict(rows: Sequence[Row]) -> bool:
    """Print the table, and say whether regret fell and the poison was stopped."""
    title("Regret a round, in probability of a right answer")
    print(f"{'round':<12}{'regret':>8}{'right':>8}{'explore':>9}  policy")
    for row in rows:
        numbers = f"{row.regret:>8.3f}{row.right:>8.1%}{row.exploration:>9.0%}"
        print(f"{row.name:<12}{numbers}  {row.verdict}")
    clean = [row.regret for row in rows if "poisoned" not in row.name]
    falls = all(later < earlier for earlier, later in pairwise(clean))
    stopped = all(row.verdict == "refused" for row in rows if "poisoned" in row.name)
    print(f"\nRegret {'falls' if falls else 'does not fall'} in every round.")
    print(f"The gate {'refused' if stopped else 'did not refuse'} the poisoned round.")
    return falls and stopped


def main() -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="three rounds instead of five")
    parser.add_argument("--folder", type=Path, default=Path(".demo-arms"))
    options = parser.parse_args()
    shutil.rmtree(options.folder, ignore_errors=True)
    options.folder.mkdir(parents=True)
    shutil.copy(HERE / "flags.json", options.folder / "flags.json")
    started = time.monotonic()
    with ingesting(options.folder) as collector, serving(options.folder) as model:
        shop = Shop(options.folder, collector, model)
        right = verdict(play(shop, EXPLORATION[::2] if options.quick else EXPLORATION))
    print(f"All of it took {time.monotonic() - started:.0f} s; it is in {options.folder}/.")
    sys.exit(0 if right else 1)


@contextmanager
def ingesting(folder: Path) -> Iterator[str]:
    """Run `lightning-ingest` on free ports; give the address of its HTTP receiver."""
    options = {"store": folder / "traces.duckdb", "http": "127.0.0.1:0", "grpc": "127.0.0.1:0"}
    with background(str(BIN / "lightning-ingest"), *flagged(options)) as process:
        for line in process.stdout or ():
            if "http://" in line:
                yield line.split("http://")[1].split(",")[0].strip()
                return
        sys.exit("demo_arms.py: lightning-ingest did not start; its message is above")


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serve the model; give its base URL."""
    port_file = folder / "port"
    script = str(HERE / "shop_model.py")
    with background(sys.executable, script, "--port-file", str(port_file)) as process:
        deadline = time.monotonic() + READY_SECONDS
        while not port_file.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit("demo_arms.py: the model server did not start; its message is above")
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port_file.read_text()}/v1"


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read a file of one JSON object a line."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


if __name__ == "__main__":
    main()
