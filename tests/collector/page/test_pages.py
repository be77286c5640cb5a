"""Each page over the made desk and over an empty store: whole, escaped, small, and linked."""

import base64
import io
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urljoin

import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from support.desk_store import Trace, add, make_desk_store, text_message
from support.environment_page import GROUPS, commands
from support.page_source import DirectSource, Page

from otel_lightning.collector.page import answer
from otel_lightning.collector.page.conversation import parts
from otel_lightning.collector.page.statements import sql_text, with_values
from otel_lightning.collector.page.text import decimal, visible
from otel_lightning.collector.page.views.tasks import MOST_TASKS
from otel_lightning.collector.store import Store, StoreError, open_store
from otel_lightning.collector.store.tables import INTERNAL

LONG = Path(__file__).parents[2] / "support" / "long_store.sql"
ROOM = Path(answer.__file__).parent
PAGES = (
    "/ui", "/ui/rollouts", "/ui/tasks", "/ui/data", "/ui/rewards", "/ui/arms", "/ui/runs", "/ui/sql"
)  # fmt: skip
COMMAND = re.compile(r"[<`>](?P<program>lightning-(?:ingest|learn)) (?P<command>[a-z]+)")
"""A command as a page or its docstring marks it as code."""
MOST_BYTES = 200_000
PAGES_A_ROUTE = 8
LEARNED = "20270115T090300Z-0004"
SCALE = re.compile(r'class="scale"><span>([^<]+)</span><span>([^<]+)</span>')
COMMAND_OF_EMPTY = {
    "/ui": "OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318",
    "/ui/rollouts": "lightning-ingest load",
    "/ui/tasks": "lightning-learn run",
    "/ui/data": "lightning-learn transitions",
    "/ui/rewards": "lightning-learn transitions --reward FILE.py:FUNCTION",
    "/ui/arms": "LIGHTNING_POLICY=flags.json",
    "/ui/runs": "lightning-learn policy",
}


def test_every_command_that_a_page_names_is_one() -> None:
    named = {
        (found["file"], found["program"], found["command"])
        for file in ROOM.rglob("*")
        if file.suffix in (".html", ".py", ".js")
        for found in (
            {"file": file.name, **one.groupdict()} for one in COMMAND.finditer(file.read_text())
        )
    }
    assert len(named) > 10
    unknown = [one for one in named if one[2] not in commands(GROUPS[one[1]])]
    assert unknown == []


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DirectSource]:
    with open_store(make_desk_store(tmp_path_factory.mktemp("desk") / "t.duckdb")) as store:
        yield DirectSource(store)


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DirectSource]:
    with open_store(tmp_path_factory.mktemp("empty") / "t.duckdb") as store:
        yield DirectSource(store)


def route(address: str) -> str:
    """The page of an address, without what it is about."""
    path = address.partition("?")[0]
    parts = r"/(rollouts|steps|tasks|states|traces|spans|arms|runs)/[^/]+"
    return re.sub(parts, r"/\1/*", path)


@pytest.mark.slow
def test_every_link_of_every_page_leads_to_a_page(desk: DirectSource) -> None:
    waiting, visited = list(PAGES), Counter[str]()
    while waiting:
        address = waiting.pop(0)
        if visited[route(address)] >= PAGES_A_ROUTE:
            continue
        visited[route(address)] += 1
        reply = desk.get(address)
        assert reply.status == 200, address
        assert len(reply.body) < MOST_BYTES, address
        if not reply.content_type.startswith("text/html"):
            continue
        for link in (urljoin(address, link) for link in Page(reply).links if link != "#main"):
            assert link.startswith("/ui"), link
            if not link.endswith((".css", ".svg")):
                waiting.append(link)
    assert {"/ui/rollouts/*", "/ui/rollouts/*/steps/*", "/ui/tasks/*", "/ui/states/*",
            "/ui/traces/*", "/ui/traces/*/spans/*", "/ui/arms/*", "/ui/runs/*", "/ui/sql.csv",
            "/ui/sql.parquet"} <= set(visited)  # fmt: skip


@pytest.mark.parametrize("address", PAGES)
def test_a_page_over_an_empty_store_says_what_fills_it(empty: DirectSource, address: str) -> None:
    reply = empty.get(address)
    assert reply.status == 200
    text = Page(reply).text
    assert COMMAND_OF_EMPTY.get(address, "") in text
    # Python's exporters speak gRPC by default, and this port takes HTTP.
    if "OTEL_EXPORTER_OTLP_ENDPOINT" in text:
        assert "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf" in text


def test_no_page_has_inline_styles_handlers_or_foreign_addresses(desk: DirectSource) -> None:
    for address in (*PAGES, "/ui/rollouts/rollout-0003", "/ui/arms/support-prompt"):
        page = Page(desk.get(address))
        names = {name for name, _ in page.attributes}
        assert "style" not in names
        assert not [name for name in names if name.startswith("on")]
        assert not [v for n, v in page.attributes if n in ("href", "src", "action") and "//" in v]
        assert page.tags.isdisjoint({"img", "iframe", "object", "embed", "base", "style"})


@pytest.mark.parametrize(
    ("address", "texts"),
    [
        ("/ui", ["rollouts60", "promoted", "span 3 has no trace_id"]),
        ("/ui/rollouts", ["ticket-18", "support-prompt=terse", "1 failed"]),
        ("/ui/rollouts?errors=1", ["1 failed"]),
        ("/ui/rollouts/rollout-0003", [
            "Where is the parcel of order C1?", "It is due on Friday. (terse)",
            "the carrier has it", "arm terse (p 0.5)", "The customer says so.", "Credit: group",
        ]),
        ("/ui/rollouts/rollout-0059", ["No transitions: no reward"]),
        ("/ui/rollouts/rollout-0006", ["The model did not answer in time."]),
        ("/ui/tasks/ticket-3", ["first difference to the first column"]),
        ("/ui/data", ["no reward", "heldout"]),
        ("/ui/rewards", ["task_success", "2 of 60 rollouts received no", "Rank correlation"]),
        ("/ui/arms/support-prompt", ["terse", "few", "0.81", "effective 51.3 of 58",
                                     "largest weight 1.67"]),
        ("/ui/runs/20270115T090100Z-0002", [
            "which is not above 0", "about 36 held-out tasks", "20270115T090200Z-0003",
        ]),
        ("/ui/runs/20270115T090300Z-0004", ["loss", "settings.exploration0.20.1"]),
        ("/ui/sql?q=SELECT+40%2B2+AS+n", ["42"]),
        ("/ui/sql?q=oh", ["syntax error"]),
    ],
)  # fmt: skip
def test_a_page_shows_what_it_is_for(desk: DirectSource, address: str, texts: list[str]) -> None:
    found = Page(desk.get(address)).text
    for text in texts:
        assert text in found


def test_a_plot_has_its_highest_and_its_lowest_value_beside_it(desk: DirectSource) -> None:
    values = desk.store.query("FROM rewards")["value"].to_pylist()
    most = max(Counter(values).values())
    assert SCALE.findall(desk.get("/ui/rewards").body.decode()) == [(str(most), "0"), ("1", "0")]
    losses = desk.store.query(f"FROM run_steps WHERE run_id = '{LEARNED}' AND name = 'loss'")
    ends = tuple(decimal(end(losses["value"].to_pylist())) for end in (max, min))
    assert ends in SCALE.findall(desk.get(f"/ui/runs/{LEARNED}").body.decode())


def test_a_measure_with_one_value_has_one_bar_and_its_value_once(tmp_path: Path) -> None:
    with open_store(make_desk_store(tmp_path / "t.duckdb")) as store:
        store.execute("UPDATE reward_events SET value = 0.75")
        page = DirectSource(store).get("/ui/rewards").body.decode()
    (measure,) = re.findall(r"<h2>task_success.*?</section>", page, re.DOTALL)
    assert measure.count('class="bar"') == 1
    assert '<p class="axis"><span>0.75</span></p>' in measure


def test_measures_of_which_one_never_differs_have_no_correlation(tmp_path: Path) -> None:
    with open_store(make_desk_store(tmp_path / "t.duckdb")) as store:
        store.execute(
            "INSERT INTO reward_events BY NAME SELECT * REPLACE ('same' AS name, 1.0 AS value, "
            "'same-' || reward_id AS reward_id) FROM reward_events"
        )
        text = Page(DirectSource(store).get("/ui/rewards")).text
    pair = text.partition("Measures that judge the same rollouts")[2].partition("Reward against")[0]
    assert "same" in pair
    assert "nan" not in pair


def test_long_ids_that_begin_alike_differ_in_a_list(tmp_path: Path) -> None:
    with open_store(tmp_path / "t.duckdb") as store:
        for number in range(2):
            store.execute(
                "INSERT INTO rollout_rows BY NAME SELECT "
                f"'unknown_service:python/session-{number}' AS rollout_id, "
                f"md5('{number}') AS trace_id, make_timestamp_ns({number}) AS start_time, "
                "1 AS llm_calls, 0 AS tool_calls, 0 AS failed_calls, 0 AS failed_tools, "
                "'open' AS outcome"
            )
        text = Page(DirectSource(store).get("/ui/rollouts")).text
    assert all(f"…/session-{number}" in text for number in range(2))


def test_a_rollout_that_only_a_rule_rewarded_is_not_told_to_lack_a_reward(tmp_path: Path) -> None:
    hint = "without a reward: a rule"
    with open_store(make_desk_store(tmp_path / "t.duckdb")) as store:
        source = DirectSource(store)
        assert f"2 rollouts {hint}" in Page(source.get("/ui/data")).text
        store.execute("UPDATE rollout_rows SET final_reward = NULL")
        assert f"2 rollouts {hint}" in Page(source.get("/ui/data")).text
        store.execute("UPDATE transition_rollouts SET excluded = NULL")
        assert hint not in Page(source.get("/ui/data")).text


def test_one_thing_is_counted_in_the_singular(tmp_path: Path) -> None:
    trace = Trace(0, service="desk")
    trace.call([text_message("user", "Hi")], text_message("assistant", "Hello"))
    with open_store(tmp_path / "t.duckdb") as store:
        add(store, [trace.request.SerializeToString()])
        store.execute("INSERT INTO rejected BY NAME SELECT 'traces' AS signal, 'no id' AS reason")
        source = DirectSource(store)
        pages = {address: Page(source.get(address)).text for address in (
            *PAGES, "/ui/rollouts/rollout-0000", f"/ui/traces/{trace.trace_id}",
            "/ui/sql?q=SELECT+1",
        )}  # fmt: skip
    assert "1 span: no id" in pages["/ui"]
    assert "1 call ·" in pages["/ui/rollouts/rollout-0000"]
    assert "1 row" in pages["/ui/sql?q=SELECT+1"]
    plurals = re.compile(r"(?<![\d.,+-])1 (?:more |earlier |held-out )?[a-z]{3,}s\b(?! bound)")
    assert [one for text in pages.values() for one in plurals.findall(text)] == []


def test_a_step_shows_only_what_is_new_in_it(desk: DirectSource) -> None:
    text = Page(desk.get("/ui/rollouts/rollout-0003")).text.split("SQL of this page")[0]
    assert text.count("You work at a support desk") == 1
    assert text.count("the carrier has it") == 2  # once for each tool
    earlier = desk.get("/ui/rollouts/rollout-0003/steps/2?earlier=4&fragment=1")
    assert Page(earlier).text.count("You work at a support desk") == 1


def test_a_large_image_or_a_long_text_hides_no_question(tmp_path: Path) -> None:
    image = base64.b64encode(bytes(range(256)) * 2400).decode()
    blob = {"type": "blob", "modality": "image", "mime_type": "image/png", "content": image}
    link = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image}"}}
    with_image = text_message("user", "Which animal is this?")
    with_image["parts"] += [blob, link]
    with_text = text_message("user", "Shorten this: " + "it rained. " * 20_000)
    with open_store(tmp_path / "t.duckdb") as store:
        for number, message in enumerate((with_image, with_text)):
            trace = Trace(number)
            trace.call([message], text_message("assistant", "I do."))
            add(store, [trace.request.SerializeToString()])
        store.execute("UPDATE llm_calls SET state_hash = rollout_id")
        source = DirectSource(store)
        for rollout, words in (("rollout-0000", "Which animal"), ("rollout-0001", "Shorten this")):
            for address in (f"/rollouts/{rollout}", f"/rollouts/{rollout}/steps/0"):
                page = Page(source.get(f"/ui{address}"))
                assert words in page.text, address
                assert "I do." in page.text
                assert len(page.html) < MOST_BYTES, address
        for address in (
            "/states/rollout-0000",
            "/rollouts/rollout-0000/steps/0?earlier=1&fragment=1",
        ):
            assert "Which animal" in Page(source.get(f"/ui{address}")).text, address
        assert "[image/png]" in Page(source.get("/ui/rollouts/rollout-0000")).text


def test_rewards_of_a_long_rollout_are_each_with_their_step(tmp_path: Path) -> None:
    steps = 320
    with open_store(make_desk_store(tmp_path / "t.duckdb")) as store:
        store.execute(with_values(LONG.read_text(), {"steps": steps, "spans": 1}))
        store.execute("""
            INSERT INTO reward_events BY NAME
            SELECT 'progress-' || step AS reward_id, trace_id, span_id, rollout_id,
                'progress' AS name, step / 1000 AS value, 'test' AS source, end_time AS "time"
            FROM llm_calls WHERE rollout_id = 'long'
        """)
        source = DirectSource(store)
        whole = Page(source.get("/ui/rollouts/long"))
        found, address = [], "/ui/rollouts/long?first=0"
        while address:
            page = Page(source.get(f"{address}&fragment=1"))
            found += re.findall(r'id="s(\d+)"|>progress <b[^>]*>([\d.]+)<', page.html)
            address = next((link for link in page.links if "first=" in link), "")
    assert "Rewards of the rollout" not in whole.text
    pairs = zip(found[::2], found[1::2], strict=True)
    judged = {int(step): value for (step, _), (_, value) in pairs}
    assert judged == {step: decimal(step / 1000) for step in range(steps)}


def test_a_reward_of_a_merged_span_or_of_a_tool_is_with_its_step(tmp_path: Path) -> None:
    with open_store(make_desk_store(tmp_path / "t.duckdb")) as store:
        store.execute("UPDATE llm_calls SET merged_span_ids = ['layer-below'] WHERE step = 2")
        store.execute("UPDATE tool_calls SET span_id = 'of-a-tool' WHERE name = 'trace_parcel'")
        for span, name in (("layer-below", "kind"), ("of-a-tool", "quick"), ("", "whole")):
            store.execute(
                "INSERT INTO reward_events BY NAME SELECT uuid() AS reward_id, trace_id, "
                f"rollout_id, nullif('{span}', '') AS span_id, '{name}' AS name, 0.5 AS value "
                "FROM rollout_rows WHERE rollout_id = 'rollout-0003'"
            )
        html = DirectSource(store).get("/ui/rollouts/rollout-0003").body.decode()
    of_rollout, *steps = html.partition("Rewards of the rollout")[2].split('<article class="step"')
    assert [[name in part for name in ("kind 0", "quick 0", "whole 0")]
            for part in (re.sub(r"\s*<b[^>]*>", " ", one) for one in (of_rollout, *steps))] == [
        [False, False, True], [False, False, False], [False, True, False], [True, False, False],
    ]  # fmt: skip


def test_a_tool_without_a_known_request_is_with_the_call_before_it(tmp_path: Path) -> None:
    def shown(store: Store) -> list[int]:
        html = DirectSource(store).get("/ui/rollouts/rollout-0003").body.decode()
        result = "→ &#34;the carrier has it"
        return [part.count(result) for part in html.split('<article class="step"')]

    with open_store(make_desk_store(tmp_path / "t.duckdb")) as store:
        assert shown(store) == [0, 1, 1, 0]
        store.execute("UPDATE tool_calls SET llm_span_id = NULL")
        assert shown(store) == [0, 1, 1, 0]
        store.execute("UPDATE tool_calls SET start_time = NULL WHERE name = 'lookup'")
        assert shown(store) == [1, 0, 1, 0]
        page = Page(DirectSource(store).get("/ui/rollouts/rollout-0003"))
    assert "Tools of no step" in page.text


@pytest.mark.parametrize("others", [0, 6])
def test_spans_without_times_break_no_page_and_are_shown(tmp_path: Path, others: int) -> None:
    trace = Trace(90)
    trace.call([text_message("user", "When?")], text_message("assistant", "At no time."))
    for span in trace.request.resource_spans[0].scope_spans[0].spans:
        span.start_time_unix_nano = span.end_time_unix_nano = 0
        span.attributes.add(key="lightning.task.id", value=AnyValue(string_value="ticket-1"))
    with open_store(make_desk_store(tmp_path / "t.duckdb", others)) as store:
        add(store, [trace.request.SerializeToString()])
        source = DirectSource(store)
        span_id = store.query("SELECT span_id FROM llm_calls WHERE start_time IS NULL")
        place = f"/ui/traces/{trace.trace_id}"
        addresses = ("/ui/rollouts/rollout-0090", "/ui/rollouts/rollout-0090/steps/0",
                     "/ui/tasks/ticket-1", f"{place}/spans/{span_id['span_id'][0]}")  # fmt: skip
        for address in (*PAGES, place, *addresses):
            assert source.get(address).status == 200, address
        assert "rollout-0090" in source.get("/ui/rollouts").body.decode()
        for address in addresses:
            assert "At no time." in Page(source.get(address)).text, address


def test_the_ends_of_a_chart_are_times_and_a_second_one_of_the_same_day_has_no_day(
    tmp_path: Path,
) -> None:
    ends = re.compile(r'class="axis"><span>([^<]+)</span><span>([^<]+)</span>')
    with open_store(make_desk_store(tmp_path / "t.duckdb")) as store:
        source = DirectSource(store)
        calls, _ = ends.findall(source.get("/ui").body.decode())
        store.execute(
            "UPDATE llm_calls SET start_time = start_time + INTERVAL 1 DAY "
            "WHERE rollout_id = 'rollout-0059'"
        )
        later, _ = ends.findall(source.get("/ui").body.decode())
    assert calls == ("15 Jan 08:00", "17:00")
    assert later == ("15 Jan 08:00", "16 Jan 17:00")


def test_a_list_that_is_cut_says_so(tmp_path: Path) -> None:
    note = "There are more tasks"
    with open_store(tmp_path / "t.duckdb") as store:
        for number in range(MOST_TASKS + 1):
            assert note not in Page(DirectSource(store).get("/ui/tasks")).text
            store.execute(
                f"INSERT INTO rollout_rows BY NAME SELECT 'r{number}' AS rollout_id, "
                f"'t' AS trace_id, 'task-{number:03}' AS task_id, "
                f"make_timestamp_ns({number}) AS start_time"
            )
        assert note in Page(DirectSource(store).get("/ui/tasks")).text
        assert note not in Page(DirectSource(store).get("/ui/tasks?id=task-09")).text


def test_many_values_of_one_field_leave_the_filter_those_of_the_others(tmp_path: Path) -> None:
    with open_store(tmp_path / "t.duckdb") as store:
        store.execute("""
            INSERT INTO rollout_rows BY NAME
            SELECT 'r' || range AS rollout_id, 't' AS trace_id,
                'service ' || range // 2 AS service_name, make_timestamp_ns(range) AS start_time,
                if(range = 0, ['prompt=rare'], []) AS arms
            FROM range(300)
        """)
        page = Page(DirectSource(store).get("/ui/rollouts"))
    assert ("value", "prompt=rare") in page.attributes


def test_metrics_of_a_run_are_numbers_and_json_and_never_python(tmp_path: Path) -> None:
    metrics = {
        "winner": None, "gains": {"careful": 0.123456}, "notes": ["one", "two"], "done": True,
        "estimates": [{"method": "dr", "value": 0.5}], "rows": 41665, "city": "K\u00f6ln",
    }  # fmt: skip
    with open_store(tmp_path / "t.duckdb") as store:
        store.execute(
            "INSERT INTO runs BY NAME SELECT 'r' AS run_id, 'gate' AS command, 'done' AS outcome, "
            f"'{json.dumps(metrics)}' AS metrics, make_timestamp_ns(1) AS started"
        )
        html = DirectSource(store).get("/ui/runs/r").body.decode()
    assert dict(re.findall(r'<th scope="row">(.*?)</th><td>(.*?)</td>', html)) == {
        "winner": "null", "gains.careful": "0.123", "notes": "one two", "done": "true",
        "estimates": "[{&#34;method&#34;: &#34;dr&#34;, &#34;value&#34;: 0.5}]", "rows": "41,665",
        "city": "K\u00f6ln",
    }  # fmt: skip


def test_each_kind_of_run_has_its_gate_in_words_that_fit(tmp_path: Path) -> None:
    paired = {
        "base": "brief", "other": "careful", "pairs": 120, "tasks": 40, "base_mean": 0.4,
        "other_mean": 0.6, "gain": 0.2, "lower": 0.1, "upper": 0.3, "refusals": ["p is 0.2"],
    }  # fmt: skip
    gates = {
        "gate": (paired, {"alpha": 0.01}),
        "evaluate": ({"models/desk-2": ["its gain may be chance"]}, {"models": ["a", "b"]}),
        "policy": ({"gain": 0.2, "lower": 0.1, "upper": 0.3}, {"key": "k", "alpha": 0.01}),
        "weights": ({"gain": 0.2, "lower": 0.1, "upper": 0.3, "shuffled": 0}, {"model": "m"}),
    }
    with open_store(tmp_path / "t.duckdb") as store:
        for number, (command, (gate, config)) in enumerate(gates.items()):
            store.execute(
                "INSERT INTO runs BY NAME SELECT "
                f"'{command}-run' AS run_id, '{command}' AS command, 'refused' AS outcome, "
                f"'{json.dumps(gate)}' AS gate, '{json.dumps(config)}' AS config, "
                f"make_timestamp_ns({number}) AS started"
            )
        source = DirectSource(store)
        texts = {command: Page(source.get(f"/ui/runs/{command}-run")).text for command in gates}
        listed = Page(source.get("/ui/runs"))
        none = Page(source.get("/ui/runs?command=judge")).text
        overview = Page(source.get("/ui")).text
    assert "Mean reward 0.4 with brief → 0.6 with careful · 120 pairs of 40 held" in texts["gate"]
    assert "95 % interval: from +0.1 to +0.3" in texts["gate"]
    assert "models/desk-2: its gain may be chance" in texts["evaluate"]
    assert "Each bound with 99 %: from +0.1 to +0.3" in texts["policy"]
    assert "--shuffle-rewards" in texts["policy"]
    assert not [name for name in ("gate", "evaluate", "weights") if "--shuffle" in texts[name]]
    assert "control: its rewards were shuffled" in texts["weights"]
    assert {f"/ui/runs?command={command}" for command in gates} <= set(listed.links)
    assert "No run of this command." in none
    assert "weights · refused" in re.sub(r"\s+", " ", overview)


@pytest.mark.parametrize(
    ("value", "chip"),
    [("ge:0.3", "reward 0.3 or more"), ("none", "reward none"), ("abc", None)],
)
def test_a_filter_is_named_as_it_works_and_one_that_does_nothing_is_not(
    desk: DirectSource, value: str, chip: str | None
) -> None:
    page = Page(desk.get(f"/ui/rollouts?reward={value}"))
    assert ("Remove reward" in [text for name, text in page.attributes]) == (chip is not None)
    assert ("has “reward=abc”, which means nothing here" in page.text) == (chip is None)
    if chip:
        assert f"{chip} \N{MULTIPLICATION SIGN}" in page.text
        assert ("value", value) in page.attributes  # the form keeps it
    else:
        linked = [link for link in page.links if link.startswith("/ui/rollouts/rollout")]
        assert linked
        assert not [link for link in linked if "reward" in link]


def test_what_is_the_same_everywhere_is_said_once(tmp_path: Path) -> None:
    with open_store(make_desk_store(tmp_path / "t.duckdb", 9)) as store:
        source = DirectSource(store)
        rollout = store.column(
            "SELECT rollout_id FROM transition_rollouts WHERE excluded IS NULL LIMIT 1"
        )[0]
        before = Page(source.get(f"/ui/rollouts/{rollout}"))
        assert "largest at step" in before.text
        assert "received no reward: show them" in Page(source.get("/ui/rewards")).text
        store.execute("UPDATE transition_rows SET advantage = 0")
        store.execute("UPDATE rollout_rows SET final_reward = 1 WHERE final_reward IS NULL")
        after = Page(source.get(f"/ui/rollouts/{rollout}"))
        assert "The advantage is 0 at every step." in after.text
        assert "largest at" not in after.text
        assert "9 rollouts, each with a received reward." in Page(source.get("/ui/rewards")).text


def test_the_console_lists_the_tables_that_are_documented(desk: DirectSource) -> None:
    page = Page(desk.get("/ui/sql"))
    named = set(re.findall(r"<summary><code>(\w+)</code>", page.html))
    assert named > {"spans", "llm_calls", "rollouts", "transitions"}
    assert not named & INTERNAL


@pytest.mark.slow
def test_next_and_previous_stay_within_the_filter_and_its_order(desk: DirectSource) -> None:
    most = 60
    for filtered in ("reward=ge%3A1", "reward=any&sort=-tokens", "arm=support-prompt%3Dterse"):
        listed = [link for link in Page(desk.get(f"/ui/rollouts?{filtered}")).links
                  if link.startswith("/ui/rollouts/rollout")]  # fmt: skip
        walked, here = [listed[0]], listed[0]
        while following := re.search(r'data-next href="([^"]+)"', Page(desk.get(here)).html):
            here = following[1].replace("&amp;", "&")
            walked.append(here)
            if len(walked) == most:
                break
        walks = min(most, len(listed))
        assert walked[:walks] == listed[:walks]
        back = re.search(r'data-previous href="([^"]+)"', Page(desk.get(walked[1])).html)
        assert back
        assert back[1].replace("&amp;", "&") == listed[0]


def test_more_rows_follow_by_key_and_none_comes_twice(desk: DirectSource) -> None:
    for order in ("newest", "reward", "-reward", "-calls", "-tokens", "-errors", "-duration"):
        page = Page(desk.get(f"/ui/rollouts?sort={order}"))
        found = [link for link in page.links if "/rollout-" in link]
        more = next(link for link in page.links if "last=" in link and "fragment" not in link)
        found += [
            link for link in Page(desk.get(more + "&fragment=1")).links if "/rollout-" in link
        ]
        judged = 58 if "reward" in order else 60
        assert (len(found), len(set(found))) == (judged, judged), order


def test_what_is_not_there_is_said_with_what_is_near(desk: DirectSource) -> None:
    missing = desk.get("/ui/rollouts/rollout-9999")
    assert missing.status == 404
    assert "rollout-0000" in Page(missing).text
    for address in ("/ui/nothing", "/ui/runs/x", "/ui/traces/x", "/ui/tasks/x", "/ui/states/x",
                    "/ui/arms/x", "/ui/rollouts/rollout-0003/steps/99",
                    "/ui/rollouts/rollout-0003/steps/x"):  # fmt: skip
        assert desk.get(address).status == 404, address


@pytest.mark.parametrize(
    "query",
    ["after=x&last=y", "at=x", "reward=ge:", "reward=ge:nan", "calls=1e9", "sort=oh", "step=-5",
     "first=99999999999999999999", "arm=%00", "id=%27%3B--"],
)  # fmt: skip
def test_parameters_that_make_no_sense_break_nothing(desk: DirectSource, query: str) -> None:
    for address in ("/ui/rollouts", "/ui/rollouts/rollout-0003", "/ui/runs", "/ui/tasks"):
        assert desk.get(f"{address}?{query}").status in (200, 404)


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_rewards_that_are_not_finite_break_no_page(tmp_path: Path, value: str) -> None:
    with open_store(make_desk_store(tmp_path / "t.duckdb")) as store:
        for table, column in (("rollout_rows", "final_reward"), ("reward_events", "value")):
            store.execute(
                f"UPDATE {table} SET {column} = '{value}' WHERE rollout_id = 'rollout-0003'"
            )
        source = DirectSource(store)
        for address in (*PAGES, "/ui/rollouts/rollout-0003", "/ui/tasks/ticket-3"):
            assert source.get(address).status == 200, address
        assert value in Page(source.get("/ui/rollouts/rollout-0003")).text


def test_the_sql_of_a_page_gives_the_same_rows_when_it_is_run_again(desk: DirectSource) -> None:
    desk.asked.clear()
    for address in ("/ui", "/ui/rollouts?sort=-reward&reward=ge:0.5", "/ui/rollouts/rollout-0003"):
        desk.get(address)
    for name, parameters, rows in desk.asked:
        again = desk.store.query(with_values(sql_text(name, parameters), parameters))
        assert again.num_rows == rows, name


def test_templates_never_mark_text_as_safe() -> None:
    for file in (ROOM / "templates").glob("*.html"):
        assert not re.search(r"\|\s*safe|autoescape|Markup", file.read_text()), file.name
    for file in ROOM.rglob("*.py"):
        assert "Markup" not in file.read_text(), file.name


def test_every_statement_is_used_and_no_value_is_formatted_into_one() -> None:
    source = "".join(file.read_text() for file in ROOM.rglob("*.py"))
    source += "".join(f'"{name}"' for file in (ROOM / "sql").glob("*.sql")
                      for name in re.findall(r"-- part: (\w+)", file.read_text()))  # fmt: skip
    for file in (ROOM / "sql").rglob("*.sql"):
        assert f'"{file.stem}"' in source, file.name
        assert "{" not in re.sub(r"\{('\w+'|\d+})", "", file.read_text()), file.name


def test_each_task_counts_once_in_the_mean_of_an_arm(tmp_path: Path) -> None:
    with open_store(tmp_path / "t.duckdb") as store:
        store.execute("""
            INSERT INTO transition_rows BY NAME
            SELECT 'r' || number AS rollout_id, 0 AS step, 't' AS trace_id, 's' AS span_id,
                'k' AS arm_key, 'a' AS arm, 0.5 AS propensity, outcome AS reward, task_hash
            FROM (VALUES (1, 1.0, 7), (2, 1.0, 7), (3, 1.0, 7), (4, 0.0, 8))
                t(number, outcome, task_hash)
        """)
        (row,) = DirectSource(store).ask("arms_table", {"key": "k"})
    assert (row["mean"], row["rollouts"], row["tasks"]) == (0.5, 4, 2)
    assert row["half"] == pytest.approx(1.96 * 0.5**0.5 / 2**0.5)


def test_outcomes_of_arms_are_undiscounted_and_count_rollouts_whose_first_call_failed(
    tmp_path: Path,
) -> None:
    with open_store(tmp_path / "t.duckdb") as store:
        # A rollout of three calls with the reward at its end, discounted by a half per call; and a
        # rollout whose first call failed, so that its transitions begin at step 1.
        store.execute("""
            INSERT INTO transition_rows BY NAME
            SELECT rollout_id, step, rollout_id AS trace_id, step::VARCHAR AS span_id, arm,
                'k' AS arm_key, 0.5 AS propensity, reward, value AS return_to_go, 7 AS task_hash,
                'refund' AS task_id
            FROM (VALUES ('long', 0, 'a', 0.0, 0.25), ('long', 1, 'a', 0.0, 0.5),
                ('long', 2, 'a', 1.0, 1.0), ('late', 1, 'a', 0.5, 0.5), ('other', 0, 'b', 0, 0))
                t(rollout_id, step, arm, reward, value);
            INSERT INTO rollout_rows BY NAME
            SELECT DISTINCT rollout_id, trace_id, TIMESTAMP_NS '2026-11-01' AS start_time
            FROM transition_rows;
        """)
        source = DirectSource(store)
        (row, _) = source.ask("arms_table", {"key": "k"})
        (day, _) = source.ask("arms_days", {"key": "k"})
        (task,) = source.ask("arms_tasks", {"key": "k"})
        example = (ROOM / "sql" / "examples" / "mean_reward_by_arm.sql").read_text()
        asked = store.query(example).to_pylist()
    assert (row["mean"], row["rollouts"]) == (0.75, 2)
    assert (day["mean"], day["rollouts"]) == (0.75, 2)
    assert (task["most"], task["least"], task["rollouts"]) == (0.75, 0.0, 3)
    assert (asked[0]["mean"], asked[0]["rollouts"]) == (0.75, 2)


def test_arguments_that_are_no_json_are_shown_as_the_model_wrote_them() -> None:
    call = {"type": "tool_call", "name": "x", "arguments": None, "arguments_raw": "{oops"}
    (part,) = parts(json.dumps([{"role": "assistant", "parts": [call]}]))
    assert (part.name, part.text) == ("x", "{oops")


def test_a_spreadsheet_runs_no_cell_of_a_saved_file(desk: DirectSource) -> None:
    reply = desk.get("/ui/sql.csv?q=SELECT+'%3DHYPERLINK(1)'+AS+a,+-1.5+AS+b,+'%2Bx'+AS+%22%40c%22")
    assert reply.body.decode().splitlines() == [
        '"a","b","\'@c"',
        '"\'=HYPERLINK(1)","-1.5","\'+x"',
    ]


def test_nested_values_are_json_and_durations_are_clocks(desk: DirectSource) -> None:
    asked = (
        "SELECT [1.5::DECIMAL(3,1), 2] AS a, {'t': TIMESTAMP '2027-01-15 08:00:00'} AS b, "
        "MAP {'k': 'v'} AS c, INTERVAL 1500 MILLISECOND AS d, [INTERVAL 3 MONTH] AS e"
    )
    text = Page(desk.get(f"/ui/sql?q={quote(asked)}")).text
    for shown in ("[1.5, 2]", '{"t": "2027-01-15 08:00:00"}', '{"k": "v"}', "00:00:01.5",
                  '["3 months"]'):  # fmt: skip
        assert shown in text


def test_a_parquet_file_has_text_where_parquet_has_no_type(desk: DirectSource) -> None:
    asked = "SELECT INTERVAL 1500 MILLISECOND AS d, [INTERVAL 3 MONTH] AS e, 7 AS n"
    saved = io.BytesIO(desk.get(f"/ui/sql.parquet?q={quote(asked)}").body)
    rows = pyarrow.parquet.read_table(saved).to_pylist()
    assert rows == [{"d": "00:00:01.5", "e": '["3 months"]', "n": 7}]


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=40)


@pytest.mark.slow
@settings(max_examples=8)
@given(name=TEXTS, text=TEXTS, answered=TEXTS, error=TEXTS)
def test_any_text_is_shown_as_it_is(
    tmp_path_factory: pytest.TempPathFactory, name: str, text: str, answered: str, error: str
) -> None:
    trace = Trace(0, service=name)
    trace.call([text_message("user", text)], text_message("assistant", answered))
    trace.span(name, {"note": text}, 1, error)
    with open_store(tmp_path_factory.mktemp("any") / "t.duckdb") as store:
        add(store, [trace.request.SerializeToString()])
        source = DirectSource(store)
        rollout = Page(source.get("/ui/rollouts/rollout-0000")).text
        span_id = store.query("SELECT span_id FROM spans ORDER BY start_time DESC LIMIT 1")
        span = Page(source.get(f"/ui/traces/{trace.trace_id}/spans/{span_id['span_id'][0]}")).text
    for wanted, page in ((text, rollout), (answered, rollout), (error, span), (name, span)):
        assert shown(wanted) in shown(page)


def shown(text: str) -> str:
    """Text as a reader sees it: a browser and JSON both treat some white space alike."""
    return re.sub(r"\s+", " ", visible(text))


def test_a_statement_that_fails_is_reported_and_the_page_stays(empty: DirectSource) -> None:
    class Broken(DirectSource):
        def ask(self, *_: object) -> list[dict[str, object]]:
            raise StoreError("It took longer than 2 seconds.")

    reply = Broken(empty.store).get("/ui/data")
    assert (reply.status, "It took longer than 2 seconds." in Page(reply).text) == (503, True)


def test_an_error_of_a_query_keeps_its_lines(empty: DirectSource) -> None:
    page = empty.get("/ui/sql?q=SELECT+nosuch+FROM+llm_calls").body.decode()
    (error,) = re.findall(r'<pre class="alarm" role="alert">(.*?)</pre>', page, re.DOTALL)
    assert error.count("\n") > 2  # the line, and the mark below the place in it
    assert error.rstrip().endswith("^")


def test_own_script_and_style_stay_small() -> None:
    sizes = {file.name: len(file.read_bytes()) for file in (ROOM / "static").iterdir()}
    assert sizes["page.js"] < 6_000
    assert sizes["page.css"] < 8_000
    assert json.dumps(sizes)
