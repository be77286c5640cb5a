"""The prompt of `lightning-ingest sql`: SQL with history and completion."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import click
from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import SqlLexer

from otel_lightning.collector.query.answer import AnswerOptions, answer, check_select
from otel_lightning.collector.store import StoreError, open_store, statement
from otel_lightning.collector.store.clients.reader_limits import ANSWERS
from otel_lightning.collector.store.print_rows import Layout, printable
from otel_lightning.collector.store.tables import INTERNAL

PROMPT, CONTINUED = "traces> ", "   ...> "
WORD = re.compile(r"[\w.]*$")
AFTER_A_TABLE = re.compile(r"\b(from|join)\s+[\w.]*$", re.IGNORECASE)
KEYWORDS = (
    "SELECT", "FROM", "WHERE", "GROUP BY", "ORDER BY", "LIMIT", "JOIN", "LEFT JOIN", "USING", "ON",
    "AS", "AND", "OR", "NOT", "IN", "IS NULL", "IS NOT NULL", "BETWEEN", "LIKE", "CASE", "WHEN",
    "THEN", "ELSE", "END", "DISTINCT", "COUNT", "SUM", "AVG", "MIN", "MAX", "WITH", "DESC",
    "QUALIFY", "SUMMARIZE", "DESCRIBE", "EXPLAIN ANALYZE", "INTERVAL", "UNION ALL", "EXCLUDE",
)  # fmt: skip
HELP = """\
A statement ends with ; and may span several lines. Tab completes, arrows walk through the history.
.tables            list tables and views
.columns TABLE     list the columns of one
.timing            print or hide how long answers take
.quit              leave, as does Ctrl+D"""


def prompt(store: Path, layout: Layout) -> None:
    """Answer statements that a user types, until Ctrl+D or `.quit`.

    The store is open only while a statement runs, so it keeps no ingester from starting.

    Raises:
        StoreError: If there is no store.
    """
    columns = read_columns(store)
    session: PromptSession[str] = PromptSession(
        history=FileHistory(str(history_file())),
        auto_suggest=AutoSuggestFromHistory(),
        completer=SqlCompleter(columns),
        complete_while_typing=False,
        lexer=PygmentsLexer(SqlLexer),
        multiline=True,
        key_bindings=_keys(),
        prompt_continuation=CONTINUED,
    )
    click.echo(f"{store}: {len(columns)} tables and views. End with ;  .help lists commands.")
    options = AnswerOptions("table", None, layout, timing=True)
    while True:
        try:
            text = session.prompt(PROMPT).strip()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        if text in (".quit", ".exit"):
            return
        options = _do(text, store, columns, options)


def read_columns(store: Path) -> Mapping[str, list[str]]:
    """Return the columns of each table and view of a store, except for internal tables."""
    with open_store(store, read_only=True) as opened:
        rows = opened.rows(statement(__package__, "columns_by_table", answers=ANSWERS))
    return {row["table_name"]: row["columns"] for row in rows if row["table_name"] not in INTERNAL}


def history_file() -> Path:
    """Return the file of the history, which only its user can read; create it if it is missing."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    folder = Path(state) / "otel-lightning"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = folder / "sql_history"
    file.touch(mode=0o600)
    return file


class SqlCompleter(Completer):
    """Completes tables, columns of the tables that the statement names, and keywords."""

    def __init__(self, columns: Mapping[str, list[str]]) -> None:
        """Take the columns of each table."""
        self._columns = columns

    def get_completions(
        self,
        document: Document,
        complete_event: CompleteEvent,  # noqa: ARG002  part of the interface
    ) -> Iterable[Completion]:
        """Yield completions of the word before the cursor."""
        before = document.text_before_cursor
        match = WORD.search(before)
        word = match[0] if match else ""
        start = word.rpartition(".")[2]
        for name in self._names(before, document.text, word):
            if name.lower().startswith(start.lower()):
                yield Completion(name, start_position=-len(start))

    def _names(self, before: str, text: str, word: str) -> Iterator[str]:
        table = word.rpartition(".")[0]
        if table:
            yield from self._columns.get(table, ())
        elif AFTER_A_TABLE.search(before) or before.startswith(".columns"):
            yield from self._columns
        else:
            named = set(re.findall(r"\w+", text))
            columns = (self._columns[one] for one in self._columns if one in named)
            yield from sorted({name for some in columns for name in some})
            yield from self._columns
            yield from KEYWORDS


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        text = event.current_buffer.text.strip()
        # Enter ends the input behind a `;` or a command; otherwise the statement goes on in a new
        # line.
        if not text or text.endswith(";") or text.startswith("."):
            event.current_buffer.validate_and_handle()
        else:
            event.current_buffer.insert_text("\n")

    return keys


def _do(
    text: str, store: Path, columns: Mapping[str, list[str]], options: AnswerOptions
) -> AnswerOptions:
    """Run one line of input; return the format for the next answers."""
    command, _, name = text.partition(" ")
    if command == ".timing":
        options = options._replace(timing=not options.timing)
        click.echo(f"Timing is {'on' if options.timing else 'off'}.")
    elif command == ".tables":
        click.echo("\n".join(columns))
    elif command == ".columns":
        names = columns.get(name.strip())
        click.echo("\n".join(map(printable, names)) if names else f"No table '{printable(name)}'.")
    elif text.startswith("."):
        click.echo(HELP)
    elif text.strip("; \n"):
        _answer(text, store, options)
    return options


def _answer(text: str, store: Path, options: AnswerOptions) -> None:
    try:
        check_select(text)
        answer(store, text, options)
    except StoreError as error:
        click.echo("\n".join(map(printable, str(error).split("\n"))), err=True)
    except click.UsageError as error:
        click.echo(error.format_message(), err=True)
    except KeyboardInterrupt:
        click.echo("Stopped.", err=True)
