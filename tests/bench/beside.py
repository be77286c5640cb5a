"""What an older version could do already, beside this one: CPU seconds by turns, in one table.

Run it with `make bench-beside`; deriving by dialect is in `make bench-derive`. Both versions do the
same work through the commands that both have, each group of lines in a process of its own with the
version's folders on `PYTHONPATH`. Each version fills its own stores from the same file of spans.
The table has the least of the turns, the slowest line first; beside it is the ratio of the medians,
so that a line whose two ratios differ is known to be noise. Lag is wall time, and depends on what
else the machine does; what `serve` spends at the same rate hardly does.
"""

import argparse
import json
import os
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

sys.path.append(str(Path(__file__).parent))

from versions import RELEASED, ROOT, checked_out, run
from workloads import RANDOM, START_NS, chat, message, span, tool

ONCE = Path(__file__).with_name("beside_once.py")
FLAGS = ROOT / "examples" / "support_desk" / "flags.json"
KEY = "support-prompt"
REWARDS = {"brief": 0.2, "friendly": 0.5, "careful": 0.8}
"""The chance of a reward of 1, by arm: the gate has something to find."""
SPANS_A_ROLLOUT = 4
ROLLOUTS_A_TASK = 4
NEEDS = {"learner": "load", "weights": "load", "ask": "fill"}
"""The group that makes the stores of a group."""
SMALL = 60
"""Rollouts of the store that warms up."""
WORDS = ("<pad>", "<end>", *(f"word{number}" for number in range(254)))
"""The vocabulary of the model. A completion's text is what its token ids say: `weights` checks it.
"""
TOKENS = (48, 24)
"""Tokens of a call's prompt and of its completion."""


def rollout(number: int) -> Iterator[Span]:
    """Yield an agent's trace: an arm, two calls with token ids, a tool between them, a reward."""
    first, trace = number * SPANS_A_ROLLOUT, number + 1
    arm = RANDOM.choice(list(REWARDS))
    agent = span(first, trace, None, operation="invoke_agent")
    task = f"task-{number // ROLLOUTS_A_TASK}"
    agent.attributes.add(key="lightning.task.id").value.string_value = task
    add_event(
        agent,
        "feature_flag.evaluation",
        {
            "feature_flag.key": KEY,
            "feature_flag.result.variant": arm,
            "lightning.propensity": 1 / len(REWARDS),
        },
    )
    reward = float(RANDOM.random() < REWARDS[arm])
    add_event(agent, "gen_ai.evaluation.result", {"gen_ai.evaluation.score.value": reward})
    yield agent
    history = [message("user", 600)]
    for place in (1, 3):
        ids = [RANDOM.choices(range(2, len(WORDS)), k=size) for size in TOKENS]
        said = " ".join(WORDS[one] for one in ids[1])
        answer = {"role": "assistant", "parts": [{"type": "text", "content": said}]}
        call = chat(first + place, trace, first, history, answer)
        for name, some in zip(("prompt", "completion"), ids, strict=True):
            key = f"lightning.{name}_token_ids"
            call.attributes.add(key=key).value.string_value = json.dumps(some)
        yield call
        history = [*history, answer, message("user", 200)]
    yield tool(first + 2, trace, first)


def add_event(made: Span, name: str, facts: dict[str, str | float]) -> None:
    """Add an event to a span, at its start."""
    event = made.events.add(name=name, time_unix_nano=START_NS)
    for key, value in facts.items():
        field = "string_value" if isinstance(value, str) else "double_value"
        setattr(event.attributes.add(key=key).value, field, value)


def write_spans(rollouts: int, file: Path) -> None:
    """Write an OTLP request with some rollouts."""
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    for number in range(rollouts):
        spans.extend(rollout(number))
    file.write_bytes(request.SerializeToString())


def write_model(folder: Path) -> None:
    """Write a tiny untrained model whose tokenizer knows the words of `WORDS`."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    known = models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token=WORDS[0])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(known), pad_token=WORDS[0], eos_token=WORDS[1]
    )
    tokenizer.chat_template = "{% for one in messages %}{{ one.content }}{% endfor %}"
    size = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "head_dim": 16}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    model = Qwen3ForCausalLM(Qwen3Config(vocab_size=len(WORDS), **size, **heads))
    for part in (tokenizer, model):
        part.save_pretrained(folder)


def prepare(scratch: Path, rollouts: int, *, model: bool) -> None:
    """Write what both versions read: a small and a large file of spans, the flag file, a model."""
    for name, count in (("small", SMALL), ("large", rollouts)):
        (scratch / name).mkdir()
        write_spans(count, scratch / name / "spans.otlp.pb")
        shutil.copy(FLAGS, scratch / name / "flags.json")
    if model:
        write_model(scratch / "large" / "model")


def by_turns(
    versions: Sequence[tuple[Path, Path]], groups: dict[str, list[str]], turns: int
) -> dict[str, list[list[float]]]:
    """Run each group with each version, by turns.

    Args:
        versions: The source folder and the scratch folder of the old and of the new version.
        groups: The more arguments of each group; see `beside_once.py`.
        turns: How often each is measured.

    Returns:
        The seconds of each line: one list for each version.
    """
    lines: dict[str, list[list[float]]] = defaultdict(lambda: [[] for _ in versions])
    for turn in range(turns):
        for group, more in groups.items():
            for place, (version, folder) in enumerate(versions):
                if group == "fill" and turn:  # the questions change nothing
                    continue
                where = folder / "small", folder / "large"
                found = run(version, group, *where, *more, script=ONCE)
                sys.stderr.write(f"turn {turn} {version.name} {found}\n")
                for name, seconds in found.items():
                    lines[name][place].append(seconds)
    return lines


def table(lines: dict[str, list[list[float]]], old: str) -> Iterator[str]:
    """Yield the table, the line that got slower the most first."""
    yield f"| line, CPU-s | {old} | now | times | times, of medians |"
    yield "|---|---|---|---|---|"
    rows = []
    for name, (before, now) in lines.items():
        least, middle = min(now) / min(before), median(now) / median(before)
        cells = f"{min(before):.3f} | {min(now):.3f} | {least:.2f} | {middle:.2f}"
        rows.append((least, f"| {name} | {cells} |"))
    yield from (row for _, row in sorted(rows, reverse=True))


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--old", default=RELEASED, help="git ref to compare with")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--rollouts", type=int, default=5_000, help="rollouts to learn from")
    parser.add_argument("--sent", type=int, default=100_000, help="spans to receive")
    parser.add_argument("--asked", type=int, default=1_000_000, help="spans of the store to ask")
    parser.add_argument("--lag-seconds", type=int, default=60)
    parser.add_argument("--rate", type=int, default=1_000, help="spans a second, for lag")
    parser.add_argument("--only", action="append", help="a group; may be repeated")
    chosen = parser.parse_args()
    groups = {
        "start": [],
        "print_table": [],
        "load": [],
        "learner": [],
        "weights": [],
        "receive": [str(chosen.sent)],
        "receive_and_derive": [str(chosen.sent)],
        "fill": [str(chosen.asked)],
        "ask": [str(chosen.asked)],
        "lag": [str(chosen.lag_seconds), str(chosen.rate)],
    }
    wanted = set(chosen.only or groups)
    for group, before in NEEDS.items():
        wanted |= {before} if group in wanted else set()
    groups = {name: more for name, more in groups.items() if name in wanted}
    os.environ |= {"OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}
    with checked_out(chosen.old) as before, TemporaryDirectory() as folder:
        first, second = Path(folder) / "old", Path(folder) / "new"
        first.mkdir()
        prepare(first, chosen.rollouts, model="weights" in groups)
        shutil.copytree(first, second)
        versions = ((before, first), (ROOT, second))
        lines = by_turns(versions, groups, chosen.turns)
    print(f"{chosen.turns} turns, load {os.getloadavg()[2]:.0f} on {os.cpu_count()} cores\n")
    print("\n".join(table(lines, chosen.old)))


if __name__ == "__main__":
    main()
