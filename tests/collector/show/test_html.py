"""A rollout in a notebook: everything is text, nothing is markup."""

from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.made_rollouts import deliver, judged, make

from otel_lightning.collector.show.html import STEPS
from otel_lightning.collector.show.rollout import Rollout, read_rollout
from otel_lightning.collector.store import open_store
from otel_lightning.collector.store.print_rows import printable

PAYLOADS = (
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "</pre><svg onload=alert(1)>",
    "<iframe srcdoc='<script>1</script>'>", "<style>*{display:none}</style>", "]]><!--",
    '"><a href="javascript:alert(1)">', "{{7*7}}", "&lt;b&gt;",
)  # fmt: skip
ELEMENTS = {"div", "b", "span", "details", "summary", "pre", "svg", "title", "rect"}


class Page(HTMLParser):
    """Collects the elements and the text of a piece of HTML."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def made(folder: Path, text: str) -> Rollout:
    (folder / "t.duckdb").unlink(missing_ok=True)
    with open_store(folder / "t.duckdb") as store:
        sent = make("r", task=text, agent=text, user=text, answers=[text, text], result=text)
        deliver(store, folder, sent, judged("r", 1.0, why=text))
        return read_rollout(store, "r")


@pytest.mark.slow
def test_markup_in_every_text_stays_text(tmp_path: Path) -> None:
    for payload in PAYLOADS:
        page = Page(made(tmp_path, payload)._repr_html_())
        assert page.elements <= ELEMENTS
        assert not {name for name in page.attributes if name.startswith("on")}
        assert page.text.count(payload) >= 6
        assert not page.open


@given(st.text())
def test_the_text_of_the_page_is_the_text_that_was_said(text: str) -> None:
    from xml.etree.ElementTree import Element, tostring

    from otel_lightning.collector.show.html import _add_message

    root = Element("div")
    _add_message(root, "user", text)
    said = "\n".join(printable(line.replace("\t", "    ")) for line in text.split("\n"))
    assert Page(tostring(root, encoding="unicode", method="html")).text == f"user{said}"


def test_a_rollout_of_many_steps_keeps_the_first_and_the_last(tmp_path: Path) -> None:
    with open_store(tmp_path / "t.duckdb") as store:
        deliver(store, tmp_path, make("r", answers=[f"answer {n}." for n in range(STEPS + 20)]))
        page = Page(read_rollout(store, "r")._repr_html_())
    assert "… 20 steps are left out …" in page.text
    assert f"step {STEPS // 2 + 20}" in page.text
    assert f"step {STEPS // 2 + 5} " not in page.text
