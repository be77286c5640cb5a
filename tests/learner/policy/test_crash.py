"""A command that is killed between any two writes: each rollout counts once, and all ends well."""

import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.running import finish

from otel_lightning.collector.store import open_store
from otel_lightning.learner.policy.learn import learn_policy
from otel_lightning.learner.policy.request import Request
from otel_lightning.learner.policy.serving import flag_document, flag_file, promotion
from otel_lightning.learner.policy.serving.compare_record import describe_served
from otel_lightning.learner.policy.serving.versions import policies_of, promotions_of

if TYPE_CHECKING:
    from conftest import Traces

KEY = "support-prompt"
TEXT = """{"flags": {"support-prompt": {"state": "ENABLED",
  "variants": {"brief": "Be brief.", "careful": "Be careful."}, "defaultVariant": "brief",
  "targeting": {"fractional": [["brief", 1], ["careful", 1]]}}}}
"""
# Counts what changes the store or a file, and kills the process before one of them.
KILLED = """
import os, pathlib, signal, sys
from pathlib import Path
from otel_lightning.collector.store import Store
from otel_lightning.learner.policy.learn import learn_policy
from otel_lightning.learner.policy.request import Request

left = int(sys.argv[3])

def before(write):
    def counted(*arguments, **named):
        global left
        statement = arguments[1] if write.__name__ == "execute" else "INSERT INTO"
        if not str(statement).lstrip().startswith(("INSERT INTO", "DELETE", "UPDATE")):
            return write(*arguments, **named)
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return write(*arguments, **named)
    return counted

for name in ("execute", "insert", "replace"):
    setattr(Store, name, before(getattr(Store, name)))
pathlib.Path.replace = before(pathlib.Path.replace)
flags = Path(sys.argv[2])
learn_policy(sys.argv[1], Request("support-prompt", flags, flags, promote=True))
"""


def log(traces: "Traces") -> str:
    for i in range(400):
        arm = ("brief", "careful")[i % 2]
        traces.call(f"r{i}")
        traces.task(f"r{i}", f"t{i}")
        traces.arm(f"r{i}", arm, 0.5)
        traces.reward(f"r{i}", float((i * 37) % 100 < (90 if arm == "careful" else 10)))
    return traces.store()


def learned(store: str) -> list[tuple[int, str, str]]:
    """What each policy learned from: number of rollouts, data, arms."""
    with open_store(store, create=False) as opened:
        runs = {
            row["run_id"]: json.loads(row["metrics"])
            for row in opened.query("SELECT run_id, metrics FROM runs").to_pylist()
        }
        return [
            (
                runs[row["run_id"]]["learned_from"],
                row["data_fingerprint"],
                json.dumps(row["arms"]),
            )
            for row in policies_of(opened, KEY)
        ]


def recorded_as_live(store: str) -> list[str]:
    """The policies that the store calls live, which must be those whose runs it calls promoted."""
    with open_store(store, create=False) as opened:
        live = [row["version"] for row in policies_of(opened, KEY) if row["status"] == "live"]
        promoted = opened.column("SELECT run_id FROM runs WHERE outcome = 'promoted'")
    assert promoted == live
    return live


def served(flags: Path) -> list[str]:
    part = flag_document.flag_part(flag_file.read_flag_file(flags, KEY), KEY)
    version = flag_document.served_version(part)
    return [] if version is None else [version]


@pytest.mark.slow
def test_command_that_is_killed_before_any_write_and_run_again_ends_as_if_it_was_not(
    traces: "Traces", tmp_path: Path
) -> None:
    store, flags = log(traces), tmp_path / "flags.json"
    flags.write_text(TEXT)
    killed = 0
    for number in range(20):
        ended = finish(sys.executable, "-c", KILLED, store, flags, str(number))
        if ended.returncode == 0:
            break
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        killed += 1
        # A file is the old one or the new one, and after the next look the store says which.
        document = flag_file.read_flag_file(flags, KEY)
        with open_store(store, create=False) as opened:
            assert "NOT as recorded" not in describe_served(opened, KEY, flags)
        assert recorded_as_live(store) == served(flags)
        assert sum(flag_document.live_shares(document, KEY).values()) == pytest.approx(1)
    else:
        pytest.fail("the command never came to its end")
    assert killed >= 4
    assert len(set(learned(store))) == 1, "a rollout was counted twice, or not at all"
    (live,) = recorded_as_live(store)
    assert served(flags) == [live]
    with open_store(store, create=False) as opened:
        last = promotions_of(opened, KEY)[-1]
        assert describe_served(opened, KEY, flags).endswith(", as recorded.")
        assert last["after"] == flag_document.flag_part(flag_file.read_flag_file(flags, KEY), KEY)
        promotion.roll_back(opened, KEY, flags)
    shares = flag_document.live_shares(flag_file.read_flag_file(flags, KEY), KEY)
    assert shares == pytest.approx({"brief": 0.5, "careful": 0.5})


# Ends the process between the record of a promotion and its file.
CUT_OFF = """
import os, sys
from pathlib import Path
from otel_lightning.collector.store import open_store
from otel_lightning.learner.policy.serving import flag_document, promotion

Path.replace = lambda *_: os._exit(1)
with open_store(sys.argv[1], create=False) as store:
    promotion.promote(store, "support-prompt", Path(sys.argv[2]))
"""


def test_promotion_that_was_cut_off_before_its_file_is_a_candidate_again(
    traces: "Traces", tmp_path: Path
) -> None:
    store, flags = log(traces), tmp_path / "flags.json"
    flags.write_text(TEXT)
    version = learn_policy(store, Request(KEY, flags, flags)).version
    assert finish(sys.executable, "-c", CUT_OFF, store, flags).returncode == 1
    assert flags.read_text() == TEXT
    assert recorded_as_live(store) == [version]  # so far
    with open_store(store, create=False) as opened:
        assert "has no record of a promotion" in describe_served(opened, KEY, flags)
    assert recorded_as_live(store) == []
    # Without a look in between, too.
    assert finish(sys.executable, "-c", CUT_OFF, store, flags).returncode == 1
    with open_store(store, create=False) as opened:
        assert promotion.promote(opened, KEY, flags).version == version
        assert len(promotions_of(opened, KEY)) == 1
    assert recorded_as_live(store) == served(flags) == [version]


def test_learning_again_counts_each_rollout_once_and_in_time_order(
    traces: "Traces", tmp_path: Path
) -> None:
    store, flags = log(traces), tmp_path / "flags.json"
    flags.write_text(TEXT)
    first, again = (learn_policy(store, Request(KEY, flags, flags)) for _ in range(2))
    assert first.learned_from == again.learned_from < 400
    assert first.logged.rows.equals(again.logged.rows)
    assert first.logged.rows["rollout_id"].is_unique().all()
    times = first.logged.rows["time"].to_list()
    assert times == sorted(times)
    assert len(set(learned(store))) == 1
