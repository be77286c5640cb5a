"""Every command, option, table and column is documented, and nothing that is not there."""

import ast
import re
import shlex
from pathlib import Path

import click
import pytest
from support.commands_page import PAGE, written
from support.environment_page import commands

from otel_lightning.collector.cli import main as ingest
from otel_lightning.collector.store import open_store
from otel_lightning.collector.store.tables import INTERNAL
from otel_lightning.learner.cli import cli as learn

ROOT = Path(__file__).parent.parent
COMMANDS = PAGE.read_text()
PARTS = ("instrumentation", "collector", "learner")
TABLES = (ROOT / "docs" / "reference" / "tables.md").read_text()

Groups = {"lightning-ingest": ingest, "lightning-learn": learn}


def section(page: str, heading: str) -> str:
    """The text under a heading, up to the next one of any level."""
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", page, re.MULTILINE | re.DOTALL)
    assert found, f"no heading '{heading}'"
    return found[1]


@pytest.mark.parametrize("program", Groups)
def test_every_command_and_option_is_documented(program: str) -> None:
    for name, command in commands(Groups[program]).items():
        text = section(COMMANDS, f"`{program} {name}`")
        options = [p for p in command.params if isinstance(p, click.Option)]
        spelled = {o for option in options for o in option.opts if o.startswith("--")}
        documented = set(re.findall(r"^\| `(--[a-z-]+)", text, re.MULTILINE))
        assert documented == spelled - {"--help"}


def test_options_are_documented_as_help_shows_them() -> None:
    """How they are written, their defaults and variables."""
    assert PAGE.read_text() == written(), "run: python tests/support/commands_page.py"


@pytest.mark.parametrize("program", Groups)
def test_help_of_a_command_that_needs_something_has_an_example_that_gives_it(program: str) -> None:
    for name, command in commands(Groups[program]).items():
        required = [p for p in command.params if p.required]
        if not command.epilog:
            assert not required, f"{program} {name} has no example"
            continue
        *_, line = command.epilog.split("\n")
        ours, dashes, _ = line.partition(" -- ")
        assert ours.split()[:2] == [program, name]
        words = [word for word in shlex.split(ours)[2:] if word.startswith("--")]
        known = {o: p for p in command.params if isinstance(p, click.Option) for o in p.opts}
        given = [known[word] for word in words]
        assert [p.name for p in required if isinstance(p, click.Option) and p not in given] == []
        assert bool(dashes) == (name in {"run", "gate"})


@pytest.mark.parametrize("program", Groups)
def test_no_documented_command_is_missing(program: str) -> None:
    documented = set(re.findall(rf"^## `{program} ([a-z-]+)`", COMMANDS, re.MULTILINE))
    assert documented == set(commands(Groups[program]))


def test_every_table_and_column_is_documented(tmp_path: Path) -> None:
    with open_store(tmp_path / "t.duckdb") as store:
        rows = store.query("SELECT table_name, column_name FROM information_schema.columns")
    columns: dict[str, set[str]] = {}
    for row in rows.to_pylist():
        columns.setdefault(row["table_name"], set()).add(row["column_name"])
    for table in columns.keys() - INTERNAL:
        documented = set(re.findall(r"^\| `([\w.]+)`", section(TABLES, f"`{table}`"), re.MULTILINE))
        assert documented == columns[table], table
        assert f"[`{table}`](#{table})" in section(TABLES, "Tables"), "the list of all tables"


def test_every_page_is_in_the_list_of_pages() -> None:
    """Decisions are listed by their folder."""
    docs = ROOT / "docs"
    linked = set(re.findall(r"\]\(([\w/-]+\.md)\)", (docs / "README.md").read_text()))
    pages = {str(one.relative_to(docs)) for one in docs.rglob("*.md")} - {"README.md"}
    assert {page for page in pages if not page.startswith("decisions/")} <= linked


def test_no_message_sends_a_user_of_the_wheel_to_a_page_that_the_wheel_does_not_have() -> None:
    for module in (m for part in PARTS for m in (ROOT / part / "otel_lightning").rglob("*.py")):
        tree = ast.parse(module.read_text())
        told = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and "docs/" in str(node.value)
        ]
        documented = [
            node.body[0].value
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            and node.body
            and isinstance(node.body[0], ast.Expr)
        ]
        assert [node.value for node in told if node not in documented] == [], module


def anchors(page: Path) -> set[str]:
    """The anchors that a renderer makes of a page's headings: lower case, hyphens for spaces."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_between_documents_lead_to_a_page_and_a_heading() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", page.read_text()):
            linked = page.parent / target if target else page
            assert linked.exists(), f"{page.name} links to {target}"
            assert not anchor or anchor in anchors(linked), (
                f"{page.name} links to {target}#{anchor}"
            )


def test_modules_that_documents_name_exist() -> None:
    """How-to pages and tutorials also name modules of their readers, so they are left out."""
    folders = [ROOT / part for part in (*PARTS, "tests", "examples")]
    modules = [f"/{one.relative_to(ROOT)}" for each in folders for one in each.rglob("*.py")]
    pages = [
        page
        for name in ("decisions", "explanation")
        for page in (ROOT / "docs" / name).rglob("*.md")
    ]
    for page in [ROOT / "CONTRIBUTING.md", *pages]:
        for named in re.findall(r"`([\w/]+\.py)`", page.read_text()):
            assert any(one.endswith(f"/{named}") for one in modules), f"{page.name}: {named}"
