import gc
import io
import sys

import pytest

from otel_lightning.collector.terminal.progress import Progress

LONG_AGO = 0.0


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def open_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Put a terminal in the place of standard error, from within the test: pytest has its own."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    return terminal


def test_short_work_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    Progress("Learning", 2).report(1)
    assert capsys.readouterr().err == ""


def test_long_work_is_a_plain_line_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress = Progress("Learning", 3, LONG_AGO)
    for step in range(1, 4):
        progress.report(step, f"loss {1 / step:.2f}")
    assert capsys.readouterr().err == "Learning: 1/3 loss 1.00\nLearning: 3/3 loss 0.33\n"


def test_long_work_is_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    progress = Progress("Learning", 2, LONG_AGO)
    progress.report(1, "loss 0.50")
    assert "1/2" in terminal.getvalue()
    assert "loss 0.50" in terminal.getvalue()
    progress.report(2)
    assert "2/2" in terminal.getvalue()


HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"


@pytest.mark.parametrize("total", [2, 0])
def test_work_that_stops_halfway_gives_the_cursor_back(
    monkeypatch: pytest.MonkeyPatch, total: int
) -> None:
    terminal = open_terminal(monkeypatch)
    Progress("Learning", total, LONG_AGO).report(1)
    gc.collect()
    written = terminal.getvalue()
    assert written.count(HIDE) == 1
    assert written.rindex(SHOW) > written.index(HIDE)
