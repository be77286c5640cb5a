import pytest

from otel_lightning.learner.progress import Progress

LONG_AGO = 0.0


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


def test_long_work_is_a_bar_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    progress = Progress("Learning", 2, LONG_AGO)
    progress.report(1)
    progress.report(2)
    half, whole = capsys.readouterr().err.lstrip("\r").split("\r")
    assert half.count("#") * 2 == whole.count("#")
    assert whole.endswith("] 2/2 \n")
