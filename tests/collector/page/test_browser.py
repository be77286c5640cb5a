"""The page in a real Chromium: keys, live, more, back, both schemes; payloads do nothing."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from support.browser import CHROMIUM, chromium, link
from support.certificates import Authority
from support.desk_store import (
    Trace,
    add,
    answers,
    desk_trace,
    make_desk_store,
    text_message,
    tool_call,
)
from support.otlp_client import column, send
from support.running import LIMIT_S, Ingester, eventually, start

from otel_lightning.collector.page.statements import with_values
from otel_lightning.collector.store import open_store

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is in the extra dev")
PlaywrightError, expect = playwright.Error, playwright.expect
expect.set_options(timeout=1000 * LIMIT_S)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        CHROMIUM is None, reason="no chromium on this machine: apt-get install chromium"
    ),
]

SUPPORT = Path(__file__).parents[2] / "support"
TREES = Path(__file__).parents[2] / "data" / "page"
STEPS = 320
PAGES = (
    "/ui", "/ui/rollouts", "/ui/rollouts/rollout-0003", "/ui/rollouts/rollout-0003/steps/1",
    "/ui/tasks", "/ui/tasks/ticket-3", "/ui/data", "/ui/rewards", "/ui/arms",
    "/ui/arms/support-prompt", "/ui/runs", "/ui/runs/20270115T090100Z-0002",
    "/ui/runs/20270115T090300Z-0004", "/ui/traces/00000000000000000000000000000004",
    "/ui/sql?q=FROM+rollouts+LIMIT+5",
)  # fmt: skip
EMPTY_PAGES = tuple(f"/ui{path}" for path in ("", "/rollouts", "/tasks", "/data", "/rewards",
                                              "/arms", "/runs", "/sql"))  # fmt: skip
PAYLOADS = (
    "<script>window.ran=1</script>",
    "<img src=x onerror=window.ran=1>",
    "<svg onload=window.ran=1>",
    '<iframe srcdoc="<script>top.ran=1</script>"></iframe>',
    '<meta http-equiv="refresh" content="0;url=http://evil.test/">',
    '<base href="http://evil.test/">',
    '<form action="http://evil.test/"><button autofocus>x</button></form>',
    '<style>@import "http://evil.test/x.css";*{display:none}</style>',
    '<a href="javascript:window.ran=1" autofocus>x</a>',
    '<link rel="stylesheet" href="http://evil.test/x.css">',
    '<object data="http://evil.test/"></object>',
    '<video src="http://evil.test/" onerror=window.ran=1></video>',
    '"><script>window.ran=1</script>',
    "'-window.ran=1-'",
    "{{ 7*7 }}${7*7}{% raw %}<%= 7*7 %>",
    "![x](http://evil.test/x.png) [x](javascript:window.ran=1)",
    "</textarea></pre></title><script>window.ran=1</script>",
    "\u202eevil\u202c \u2066x\u2069 \x1b]0;title\x07 \x1b[2J",
    "<details open ontoggle=window.ran=1>",
    "--><!--<x style=animation-name:x onanimationstart=window.ran=1>",
)
CONTRAST = """() => {
  const light = (c) => { const [r, g, b] = c.map((v) => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b };
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (text) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data] };
  const behind = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c[3] > 250) return c.slice(0, 3) } return rgb("Canvas").slice(0, 3) };
  const bad = new Set();
  for (const e of document.querySelectorAll("body *")) {
    if (![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) || !e.checkVisibility() || e.closest("svg")) continue;
    const [a, b] = [light(rgb(getComputedStyle(e).color).slice(0, 3)), light(behind(e))];
    if ((Math.max(a, b) + .05) / (Math.min(a, b) + .05) < 4.5) bad.add(`${e.tagName}.${e.className}: ${e.textContent.slice(0, 30)}`);
  }
  return [...bad];
}"""  # noqa: E501  script of the test
WATCH = """
  window.violations = [];
  document.addEventListener("securitypolicyviolation", (e) => violations.push(e.violatedDirective + " " + e.blockedURI));
"""  # noqa: E501


def hostile_trace() -> Trace:
    """A rollout whose every text, name and key is a payload."""
    trace = Trace(900, service=PAYLOADS[0])
    messages = [text_message("system", PAYLOADS[1])]
    for number, payload in enumerate(PAYLOADS):
        call = tool_call(payload, f"c{number}", {payload: payload})
        trace.call([*messages, text_message(payload, payload)], call)
        trace.choose(payload, 0.5)
        messages = [*messages, text_message("user", payload), call, answers(f"c{number}", payload)]
        trace.span(payload, {payload: payload, "__proto__.ran": "1"}, 0.1, payload)
    trace.choose("long" * 30, 0.5)
    return trace


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ingester]:
    """An ingester on the desk's store, with a long rollout and a hostile one."""
    store = make_desk_store(tmp_path_factory.mktemp("desk") / "t.duckdb")
    with open_store(store) as opened:
        add(opened, [hostile_trace().request.SerializeToString()])
        long_rollout = (SUPPORT / "long_store.sql").read_text()
        opened.execute(with_values(long_rollout, {"steps": STEPS, "spans": 450}))
    started = start(store)
    yield started
    started.stop()


@pytest.fixture(scope="module")
def unfilled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ingester]:
    started = start(tmp_path_factory.mktemp("empty") / "t.duckdb")
    yield started
    started.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


class Tab:
    """A tab that was let in, and everything that it asked for and complained about."""

    def __init__(self, browser: Any, ingester: Ingester, **context: Any) -> None:
        self.base = f"http://{ingester.http}"
        self.context = browser.new_context(**context)
        self.context.set_default_timeout(1000 * LIMIT_S)
        self.context.add_init_script(WATCH)
        self.page = self.context.new_page()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self._hear)
        self.page.goto(link(ingester))

    def _hear(self, told: Any) -> None:
        if told.type in ("error", "warning"):
            self.complaints.append(told.text)

    def go(self, path: str) -> None:
        self.page.goto(self.base + path)

    def check_clean(self) -> None:
        """Nothing was asked of another site, nothing violated the policy, no script failed."""
        assert [url for url in self.requests if not url.startswith(self.base)] == []
        assert self.complaints == []
        assert self.page.evaluate("window.violations") == []
        assert self.page.evaluate("window.ran") is None


@pytest.fixture
def tab(browser: Any, served: Ingester) -> Iterator[Tab]:
    opened = Tab(browser, served, viewport={"width": 1200, "height": 800})
    yield opened
    opened.check_clean()
    opened.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_page_is_readable_in_both_schemes_and_asks_only_its_own_server(
    scheme: str, tab: Tab
) -> None:
    tab.page.emulate_media(color_scheme=scheme)
    for path in PAGES:
        tab.go(path)
        assert tab.page.evaluate(CONTRAST) == [], path
        tab.check_clean()


def test_each_page_over_an_empty_store_is_clean_and_fits_a_narrow_window(
    browser: Any, unfilled: Ingester
) -> None:
    tab = Tab(browser, unfilled, viewport={"width": 360, "height": 640})
    for path in EMPTY_PAGES:
        tab.go(path)
        assert tab.page.locator("main").inner_text()
        assert tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        tab.check_clean()
    tab.context.close()


def test_each_page_fits_a_narrow_window(tab: Tab) -> None:
    tab.page.set_viewport_size({"width": 360, "height": 640})
    for path in (*PAGES, "/ui/rollouts/rollout-0900"):
        tab.go(path)
        assert tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path


def test_long_names_and_ids_push_nothing_out_of_the_window(browser: Any, tmp_path: Path) -> None:
    trace, word = Trace(1, service="s" * 200), "w" * 200
    named = {"gen_ai.agent.name": word, "lightning.rollout.id": word, "gen_ai.request.model": word}
    trace.span("chat", {"gen_ai.operation.name": "chat", **named}, 1)
    asked = [tool_call(word, "a", {word: word})]
    output = {"gen_ai.operation.name": "chat", "gen_ai.output.messages": json.dumps(asked)}
    judged = trace.span("chat", {**output, **named}, 1).events.add(name="gen_ai.evaluation.result")
    judged.attributes.add(key="gen_ai.evaluation.name", value=AnyValue(string_value=word))
    judged.attributes.add(key="gen_ai.evaluation.score.value", value=AnyValue(double_value=1))
    judged.attributes.add(key="gen_ai.evaluation.explanation", value=AnyValue(string_value=word))
    with open_store(tmp_path / "t.duckdb") as store:
        add(store, [trace.request.SerializeToString()])
    ingester = start(tmp_path / "t.duckdb")
    try:
        tab = Tab(browser, ingester)
        for width in (1200, 360):
            tab.page.set_viewport_size({"width": width, "height": 800})
            for path in ("/ui", "/ui/rollouts", f"/ui/rollouts/{word}"):
                tab.go(path)
                inside = "(element) => element.scrollWidth <= element.clientWidth"
                assert tab.page.locator("html").evaluate(inside), (path, width)
                # A table may scroll in a narrow window.
                for part in tab.page.locator(".step > header, .scroll").all()[: width // 400]:
                    assert part.evaluate(inside), (path, width)
                for part in tab.page.locator(".step").all():
                    assert part.evaluate(inside), (path, width)
        tab.context.close()
    finally:
        ingester.stop()


def test_the_fields_of_a_filter_and_their_names_are_each_in_one_line(tab: Tab) -> None:
    tab.go("/ui/rollouts")
    names, fields = tab.page.evaluate("""() => {
        const labels = [...document.querySelectorAll("form.filter label")]
        const top = element => element.getBoundingClientRect().top
        return [labels.map(top), labels.map(one => top(one.querySelector("input, select")))]
    }""")
    assert len(names) == len(fields) > 6
    below = {field - name for name, field in zip(names, fields, strict=True)}
    assert max(below) - min(below) < 0.5
    assert len(set(names)) <= 2, "at most two lines, and in each all names are equally high"


def test_a_long_arm_pushes_no_column_out_of_a_wide_window(tab: Tab) -> None:
    tab.go("/ui/rollouts?id=rollout-0900")
    assert "longlong" in tab.page.locator("tbody").inner_text()
    table = tab.page.locator(".scroll")
    assert table.evaluate("(element) => element.scrollWidth <= element.clientWidth")


def test_long_names_of_keys_arms_and_tasks_push_no_number_out_of_a_wide_window(
    browser: Any, tmp_path: Path
) -> None:
    path, word = make_desk_store(tmp_path / "t.duckdb"), "w" * 200
    with open_store(path) as store:
        for renamed in (
            f"transition_rows SET arm = arm || '{word}', arm_key = '{word}'",
            f"transition_rows SET task_id = task_id || '{word}'",
            f"rollout_rows SET task_id = task_id || '{word}'",
            f"arms SET arm = arm || '{word}', key = '{word}'",
            f"policies SET arms = replace(arms, 'terse', '{word}'), key = '{word}'",
        ):
            store.execute(f"UPDATE {renamed}")
    ingester = start(path)
    try:
        tab = Tab(browser, ingester, viewport={"width": 1200, "height": 800})
        for page, tables in (("/ui/arms", 1), (f"/ui/arms/{word}", 3), ("/ui/tasks", 1)):
            tab.go(page)
            scrolls = tab.page.locator(".scroll").all()
            assert len(scrolls) == tables, page
            for table in scrolls:
                assert word in table.inner_text()
                assert table.evaluate("(element) => element.scrollWidth <= element.clientWidth")
        tab.context.close()
    finally:
        ingester.stop()


def test_a_reason_for_a_refusal_makes_no_tall_row_in_a_narrow_window(tab: Tab) -> None:
    tab.page.set_viewport_size({"width": 390, "height": 640})
    tab.go("/ui/runs")
    rows = tab.page.locator("tbody tr")
    reasons = [row for row in rows.all() if len(row.locator("td").last.inner_text()) > 50]
    assert reasons
    lines = 4 * 22.5  # pixels of a line of text
    assert max(row.bounding_box()["height"] for row in reasons) < lines


def test_payloads_in_every_text_do_nothing(tab: Tab, served: Ingester) -> None:
    query = "SELECT trace_id || '/spans/' || span_id FROM spans WHERE name LIKE '%<%' LIMIT 3"
    spans = [f"/ui/traces/{place}" for place in column(served.store, query)]
    arm = "/ui/rollouts?arm=support-prompt%3D%3Cscript%3Ewindow.ran%3D1%3C%2Fscript%3E"
    for path in ("/ui/rollouts/rollout-0900", "/ui/rollouts/rollout-0900/steps/19", "/ui/rollouts",
                 f"/ui/traces/{901:032x}", "/ui/arms/support-prompt", arm, "/ui", *spans,
                 "/ui/sql?q=FROM+llm_calls+ORDER+BY+output_tokens+DESC+LIMIT+30",
                 "/ui/sql?q=%3Cscript%3Ewindow.ran%3D1%3C%2Fscript%3E"):  # fmt: skip
        tab.go(path)
        tab.check_clean()
    tab.go("/ui/rollouts/rollout-0900")
    text = tab.page.locator("main").inner_text()
    for payload in PAYLOADS[:17]:
        assert payload in text
    assert "⟨202E⟩evil⟨202C⟩" in text
    assert "⟨1B⟩]0;title⟨07⟩" in text
    tab.page.locator(".step details").last.locator("summary").click()
    tab.page.get_by_text("compare").first.wait_for()


def test_keys_walk_open_and_judge(tab: Tab, served: Ingester) -> None:
    page = tab.page
    tab.go("/ui/rollouts?arm=support-prompt%3Dterse&sort=newest")
    for key in "jjk":
        page.keyboard.press(key)
    rows = page.locator("[data-row]")
    assert page.evaluate("document.activeElement.href") == tab.base + rows.first.get_attribute(
        "href"
    )
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/rollouts/"))
    first = page.url
    page.keyboard.press("n")
    page.wait_for_url(lambda url: url != first)
    page.keyboard.press("p")
    page.wait_for_url(first)
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.id") == "s0"
    page.keyboard.press("4")
    page.get_by_text("Judged step 0: 0.75").wait_for()
    judged = "SELECT value FROM judgements WHERE name = 'human' AND span_id IS NOT NULL"
    eventually(lambda: column(served.store, judged) == [0.75])
    page.keyboard.press("?")
    assert page.locator("dialog#keys").is_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("u")
    page.wait_for_url(re.compile("/rollouts.arm="))
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.type") == "search"
    page.keyboard.type("ticket-1")  # keys are text in a field
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("id=ticket-1"))


def test_a_key_leads_to_the_step_of_the_largest_advantage(tab: Tab, served: Ingester) -> None:
    unequal = "SELECT rollout_id FROM transitions WHERE advantage <> 0 ORDER BY ALL LIMIT 1"
    tab.go(f"/ui/rollouts/{quote(column(served.store, unequal)[0], safe='')}")
    tab.page.keyboard.press("g")
    tab.page.wait_for_url(re.compile(r"#s\d"))


def test_the_next_error_is_one_key_away(tab: Tab) -> None:
    tab.go("/ui/rollouts")
    tab.page.keyboard.press(".")
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_url(re.compile("/rollouts/"))
    tab.page.keyboard.press(".")
    assert tab.page.evaluate("document.activeElement.matches('[data-error]')")


def test_buttons_judge_as_the_keys_do(tab: Tab, served: Ingester) -> None:
    tab.go("/ui/rollouts/rollout-0010")
    tab.page.get_by_role("button", name="Judge 0.25").first.click()
    tab.page.get_by_text("Judged the rollout: 0.25").wait_for()
    query = "SELECT value FROM judgements WHERE rollout_id = 'rollout-0010' AND name = 'human'"
    eventually(lambda: column(served.store, query) == [0.25])


def test_a_linked_step_is_not_behind_the_bar_above_it(tab: Tab) -> None:
    for step, width in ((200, 1200), (201, 390)):
        tab.page.set_viewport_size({"width": width, "height": 800})
        tab.go(f"/ui/rollouts/long?step={step}#s{step}")
        bar = tab.page.locator(".sticky").bounding_box()
        head = tab.page.locator(f"#s{step} > header").bounding_box()
        assert head["y"] >= bar["y"] + bar["height"], width


def test_a_judgement_is_confirmed_where_the_reader_is(tab: Tab) -> None:
    tab.go("/ui/rollouts/long?step=200#s200")
    tab.page.locator("#s200").focus()
    tab.page.keyboard.press("3")
    expect(tab.page.get_by_text("Judged step 200: 0.5")).to_be_in_viewport()


def test_a_page_says_that_its_server_has_stopped(browser: Any, tmp_path: Path) -> None:
    ingester = start(make_desk_store(tmp_path / "t.duckdb"))
    tab = Tab(browser, ingester)
    tab.go("/ui/rollouts/rollout-0003")
    tab.page.get_by_text("idle").wait_for()
    ingester.stop()
    tab.page.get_by_text("not connected").wait_for()
    tab.page.get_by_role("button", name="Judge 0.25").first.click()
    tab.page.get_by_text("Not judged: lightning-ingest does not answer").wait_for()
    tab.page.locator(".step details summary").last.click()
    tab.page.get_by_text("Not loaded: lightning-ingest does not answer.").wait_for()
    assert [told for told in tab.complaints if "Failed to load resource" not in told] == []
    tab.context.close()


def test_more_steps_are_loaded_as_one_scrolls(tab: Tab) -> None:
    tab.go("/ui/rollouts/long")
    steps = tab.page.locator("article.step")
    assert 0 < steps.count() < STEPS

    def scrolled() -> bool:
        tab.page.mouse.wheel(0, 20_000)
        return bool(steps.count() == STEPS)

    eventually(scrolled)
    ids = tab.page.evaluate("[...document.querySelectorAll('article.step')].map((s) => s.id)")
    assert ids == [f"s{n}" for n in range(STEPS)]


def test_more_rows_of_a_list_and_of_a_trace_follow(tab: Tab) -> None:
    for path, rows in (("/ui/rollouts", 62), ("/ui/traces/wide", 450)):
        tab.go(path)
        found = tab.page.locator("tbody [data-row]")

        def scrolled(found: Any = found, rows: int = rows) -> bool:
            tab.page.mouse.wheel(0, 20_000)
            return bool(found.count() == rows)

        eventually(scrolled)


def test_back_leads_to_the_same_filter_and_a_link_to_the_same_step(tab: Tab) -> None:
    tab.go("/ui/rollouts")
    tab.page.get_by_label("Ended").select_option("truncated")
    tab.page.get_by_role("button", name="Filter").click()
    tab.page.wait_for_url(re.compile("outcome=truncated"))
    listed = tab.page.locator("tbody").inner_text()
    tab.page.locator("[data-row]").nth(2).click()
    tab.page.wait_for_url(re.compile("/rollouts/"))
    tab.page.go_back()
    assert tab.page.locator("tbody").inner_text() == listed
    assert tab.page.get_by_label("Ended").input_value() == "truncated"
    tab.go("/ui/rollouts/long?step=200#s200")
    assert tab.page.locator("#s200").is_visible()


def test_new_rollouts_are_told_and_the_list_does_not_move(tab: Tab, served: Ingester) -> None:
    tab.go("/ui/rollouts")
    listed = tab.page.locator("tbody").inner_text()
    tab.page.get_by_text("idle").or_(tab.page.get_by_text("a second")).wait_for()
    send(served.http, desk_trace(70).request.SerializeToString())
    tab.page.get_by_text("1 new, show").wait_for()
    assert tab.page.locator("tbody").inner_text() == listed
    tab.page.get_by_text("1 new, show").click()
    expect(tab.page.get_by_text("1 new, show")).to_have_count(0)


def test_a_query_runs_by_its_key_and_is_in_the_address(tab: Tab) -> None:
    tab.go("/ui/sql")
    tab.page.locator("textarea").fill("SELECT 40 + 2 AS answer")
    tab.page.keyboard.press("Control+Enter")
    tab.page.wait_for_url(re.compile("q=SELECT"))
    assert tab.page.locator("table.rows tbody").inner_text().strip() == "42"


def test_a_locked_tab_says_how_to_get_in(browser: Any, served: Ingester) -> None:
    context = browser.new_context()
    context.set_default_timeout(1000 * LIMIT_S)
    page = context.new_page()
    page.goto(f"http://{served.http}/ui/rollouts/rollout-0003")
    assert "lightning-ingest open /ui/rollouts/rollout-0003" in page.inner_text("main")
    context.close()


def test_a_client_certificate_opens_the_page_and_nothing_else_does(
    browser: Any, starter: Callable[..., Ingester], tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    ingester = starter(*authority.options("first"), "--tls-client-ca", str(tmp_path / "ca.pem"))
    origin = f"https://{ingester.http}"
    client = {"origin": origin, "certPath": tmp_path / "client.pem",
              "keyPath": tmp_path / "client.key"}  # fmt: skip
    known = browser.new_context(ignore_https_errors=True, client_certificates=[client])
    known.set_default_timeout(1000 * LIMIT_S)
    page = known.new_page()
    page.goto(f"{origin}/ui")
    page.get_by_role("link", name="Rollouts", exact=True).click()
    page.wait_for_url(f"{origin}/ui/rollouts")
    page.get_by_text("0 spans · idle").wait_for()
    stranger = browser.new_context(ignore_https_errors=True).new_page()
    with pytest.raises(PlaywrightError, match="ERR_"):
        stranger.goto(f"{origin}/ui")
    known.close()
    stranger.context.close()


@pytest.mark.parametrize(
    ("name", "path"),
    [("rollout", "/ui/rollouts/rollout-0003"), ("run", "/ui/runs/20270115T090100Z-0002")],
)
def test_assistive_technology_gets_the_whole_page(name: str, path: str, tab: Tab) -> None:
    tab.go(path)
    tree = tab.page.locator("main").aria_snapshot() + "\n"
    assert tree == (TREES / f"{name}.yml").read_text()
