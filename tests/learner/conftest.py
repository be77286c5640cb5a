"""A store of known rollouts, written the way the collector writes them."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import cache
from hashlib import sha256
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
import pytest
from support import running

from otel_lightning.collector.derive.histories.state import ToolTexts, state_hash
from otel_lightning.collector.refresh.rollouts.rollout_rows import READ_COLUMNS, NewRows
from otel_lightning.collector.store import Store, open_store
from otel_lightning.instrumentation.attributes import ATTEMPT

Row = dict[str, Any]


def minute(number: int) -> datetime:
    return datetime(2026, 11, 1, minute=number)  # noqa: DTZ001 - the store's UTC has no zone


def message(role: str, text: str) -> Row:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


MADE: dict[str, bytes] = {}
"""The last new stores by what was added to them: many tests of a file begin with the same one."""
MOST_MADE = 4


class Traces:
    """Rows for a store; any column can be given by name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._rows: dict[str, list[Row]] = defaultdict(list)
        self._numbers = count()

    def call(self, rollout: str, step: int = 0, **columns: Any) -> None:
        """Add a model call whose span id is `<rollout>.<step>`."""
        name = f"{rollout}.{step}"
        row = {
            "trace_id": rollout,
            "span_id": name,
            "rollout_id": rollout,
            "step": step,
            "start_time": minute(0) + timedelta(seconds=step),
            "end_time": minute(0) + timedelta(seconds=step + 1),
            "finish_reason": "stop",
            "response_id": f"response-{name}",
            "input_messages": json.dumps([message("user", f"question {name}")]),
            "output_messages": json.dumps([message("assistant", f"answer {name}")]),
        }
        row |= columns
        messages = json.loads(row["input_messages"] or "null")
        saw = (
            row.get("prompt_token_ids"),
            sha256(json.dumps(messages).encode()).hexdigest() if messages else None,
            ToolTexts().of(json.loads(row.get("tool_definitions") or "null")),
        )
        said = bool(row["output_messages"] or row.get("completion_token_ids"))
        derived = {"state_hash": state_hash(*saw), "has_completion": said}
        self._rows["llm_calls"].append(derived | row)

    def tool(self, rollout: str, name: str, *, step: int = 0, **columns: Any) -> None:
        """Add the execution of a tool that a call asked for."""
        number = len(self._rows["tool_calls"])
        row = {
            "trace_id": rollout,
            "span_id": f"tool-{number}",
            "rollout_id": rollout,
            "llm_span_id": f"{rollout}.{step}",
            "name": name,
            "start_time": minute(0) + timedelta(seconds=step, milliseconds=number),
        }
        self._rows["tool_calls"].append(row | columns)

    def agent(self, rollout: str, name: str, first: int, last: int, **columns: Any) -> None:
        """Add the run of an agent around two steps and what lies between; a root by default."""
        row = {
            "trace_id": rollout,
            "span_id": f"{rollout}.{name}",
            "rollout_id": rollout,
            "name": name,
            "kind": "agent",
            "parent_span_id": None,
            "start_time": minute(0) + timedelta(seconds=first),
            "end_time": minute(0) + timedelta(seconds=last + 1.5),
        }
        self._rows["agent_runs"].append(row | columns)

    def reward(self, rollout: str | None, value: float | None, **columns: Any) -> None:
        """Add a judgement of a whole rollout."""
        row = {
            "reward_id": str(next(self._numbers)),
            "rollout_id": rollout,
            "name": "task_success",
            "value": value,
            "time": minute(1),
        }
        self._rows["reward_events"].append(row | columns)

    def arm(self, rollout: str, arm: str, propensity: float | None, **columns: Any) -> None:
        """Add a choice for the flag `support-prompt`."""
        row = {
            "trace_id": rollout,
            "rollout_id": rollout,
            "key": "support-prompt",
            "arm": arm,
            "propensity": propensity,
            "policy_version": "uniform",
            "time": minute(0),
        }
        self._rows["arms"].append(row | columns)

    def task(self, rollout: str, task: str) -> None:
        """Say which task a rollout was about."""
        self._rows["rollout_tasks"].append({"rollout_id": rollout, "task_id": task})

    def attempt(self, rollout: str, status: str, arm: str | None = None) -> None:
        """Say how the attempt of `lightning-learn run` ended that has this rollout id."""
        said = {"rollout_id": rollout, "run_id": "run", "status": status, "arm": arm}
        row = {
            "log_id": f"attempt-{rollout}",
            "time": minute(1),
            "event_name": ATTEMPT,
            "body": json.dumps(said),
        }
        self._rows["logs"].append(row)

    def store(self) -> str:
        """Write what was added, and name the store."""
        asked = sha256(repr(self._rows).encode()).hexdigest()
        if self.path.exists():
            self._write()
        elif asked in MADE:
            self.path.write_bytes(MADE[asked])
        else:
            self.path.write_bytes(empty_store())
            self._write()
            for _ in range(len(MADE) + 1 - MOST_MADE):
                del MADE[next(iter(MADE))]
            # Closing a store writes its log into the file.
            assert not self.path.with_name(f"{self.path.name}.wal").exists()
            MADE[asked] = self.path.read_bytes()
        self._rows.clear()
        return str(self.path)

    def begin_with(self, other: "Traces") -> None:
        """Begin with the store of others, for tests that change it."""
        self.path.write_bytes(other.path.read_bytes())
        self._numbers = count(next(other._numbers))

    def _write(self) -> None:
        with open_store(self.path) as store, store.transaction():
            for name, rows in self._rows.items():
                frame = pl.DataFrame(rows, infer_schema_length=None)
                store.insert(name, frame.to_arrow(compat_level=pl.CompatLevel.oldest()))
            if self._rows:  # a store that an ingester holds has no new rows
                keep_rollouts(store)

    def ask(self, statement: str) -> list[Row]:
        """Answer a SELECT from the store."""
        with open_store(self.path, create=False) as store:
            rows: list[Row] = store.query(statement).to_pylist()
        return rows


@cache
def empty_store() -> bytes:
    """A new store, whose tables take longer to make than to copy."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "traces.duckdb"
        open_store(path).close()
        return path.read_bytes()


def keep_rollouts(store: Store) -> None:
    """Make the row of each rollout, as deriving does for what it inserts."""
    store.execute("DELETE FROM rollout_rows")
    rows = NewRows()
    for table, columns in READ_COLUMNS.items():
        rows.add(table, store.query(f"SELECT {', '.join(columns)} FROM {table}"))
    rows.keep_rollouts(store)


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The path of a store that a running ingester serves."""
    ingester = running.start(tmp_path_factory.mktemp("served") / "traces.duckdb")
    yield ingester.store
    ingester.stop()


@pytest.fixture
def traces(tmp_path: Path) -> Traces:
    return Traces(tmp_path / "traces.duckdb")


@pytest.fixture(scope="module")
def new_traces(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Traces]:
    """Make stores that all tests of a module share."""
    return lambda: Traces(tmp_path_factory.mktemp("store") / "traces.duckdb")


CHAT_TEMPLATE = (
    "{% for message in messages %}<{{ message.role }}> {{ message.content }} "
    "{% for call in message.tool_calls or [] %}<call> {{ call.function.name }} "
    "{% for value in call.function.arguments.values() %}{{ value }} {% endfor %}{% endfor %}"
    "<end> {% endfor %}{% if add_generation_prompt %}<assistant> {% endif %}"
)
"""A word is a token; a turn is `<role> words <end>`."""

SPECIAL = ["<pad>", "<end>", "<unk>", "<system>", "<user>", "<assistant>", "<tool>", "<call>"]
WORDS = ["lookup", "refund", "return", "status", "left", "right", "up", "down"]
VOCABULARY = [*SPECIAL, *WORDS, *(str(number) for number in range(30))]


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    """A tokenizer of a few words, made here."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    pad, end, unknown, *_ = SPECIAL
    number = {word: i for i, word in enumerate(VOCABULARY)}
    words = Tokenizer(models.WordLevel(number, unk_token=unknown))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made = PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token=pad, eos_token=end, unk_token=unknown
    )
    made.chat_template = CHAT_TEMPLATE
    return made
