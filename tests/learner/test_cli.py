import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner
from support.environment_page import commands
from support.running import finish

from otel_lightning.learner.cli import COMMANDS, cli
from otel_lightning.learner.commands.values import RangeOfRewards

if TYPE_CHECKING:
    from conftest import Traces

HEAVY = ["torch", "transformers", "trl", "datasets", "polars", "duckdb", "pyarrow"]


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys, json\n"
        "from otel_lightning.learner.__main__ import main\n"
        "sys.argv = ['lightning-learn', *sys.argv[1:]]\n"
        "try:\n    main()\n"
        f"finally:\n    print(json.dumps([m for m in {HEAVY!r} if m in sys.modules]))\n"
    )
    for arguments in (["--help"], ["weights", "--help"]):
        answer = finish(sys.executable, "-c", program, *arguments, check=True).stdout
        assert "Usage: lightning-learn" in answer
        assert json.loads(answer.splitlines()[-1]) == []


def test_the_list_of_commands_has_their_own_summaries() -> None:
    context = click.Context(cli)
    own = {name: cli.get_command(context, name) for name in COMMANDS}
    summaries = {name: one.get_short_help_str(200) for name, one in own.items() if one}
    assert summaries == {name: summary for name, (_, summary) in COMMANDS.items()}


def test_the_list_of_commands_imports_none() -> None:
    program = (
        "import sys\n"
        "from otel_lightning.learner.cli import cli\n"
        "cli(['--help'], standalone_mode=False)\n"
        "assert not [m for m in sys.modules if '.learner.commands' in m or m == 'numpy']\n"
    )
    assert "transitions" in finish(sys.executable, "-c", program, check=True).stdout


def test_run_loads_nothing_heavy() -> None:
    """Its start is most of what short rollouts cost."""
    program = (
        "import sys, json\n"
        "import otel_lightning.learner.commands.run\n"
        "from otel_lightning.learner.rollout_runner import run_agent\n"
        "from otel_lightning.learner.rollout_runner.report import Report, interval\n"
        "interval(Report('run', 2, 0, {'ok': 2}, {'a': 0.0, 'b': 1.0}))\n"
        f"print(json.dumps([m for m in {[*HEAVY, 'numpy', 'rich']!r} if m in sys.modules]))\n"
    )
    assert json.loads(finish(sys.executable, "-c", program, check=True).stdout) == []


def test_missing_package_is_one_sentence() -> None:
    program = (
        "import sys; sys.modules['polars'] = None\n"
        "from otel_lightning.learner.__main__ import main\n"
        "sys.argv = ['lightning-learn', 'transitions']\n"
        "main()"
    )
    process = finish(sys.executable, "-c", program)
    assert process.returncode == 1
    assert process.stderr == (
        "lightning-learn needs the package 'polars'. Install it with: "
        "pip install 'otel-lightning[learner]' (in a checkout: pip install -e '.[learner]')\n"
    )


@pytest.mark.parametrize("command", sorted(commands(cli)))
def test_every_option_has_an_environment_variable(command: str) -> None:
    options = [one for one in commands(cli)[command].params if not isinstance(one, click.Argument)]
    for parameter in options:
        assert isinstance(parameter, click.Option)
        assert str(parameter.envvar).startswith("LIGHTNING_")


def test_store_can_come_from_the_environment(traces: "Traces") -> None:
    traces.call("a")
    traces.reward("a", 0.5)
    environment = {"LIGHTNING_STORE": traces.store()}
    result = CliRunner(env=environment).invoke(cli, ["transitions"], catch_exceptions=False)
    assert result.exit_code == 0
    assert "1 transition from 1 of 1 rollout; 1 built" in result.output
    assert "Mean reward 0.5000." in result.output


def test_missing_store_is_one_sentence_and_exit_code_1(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["transitions", "--store", f"{tmp_path}/none.duckdb"])
    assert result.exit_code == 1
    assert "Error: There is no store at" in result.stderr


def test_a_command_after_its_options_is_answered_with_the_right_order() -> None:
    result = CliRunner().invoke(cli, ["--store", "a b", "policy"])
    assert result.exit_code == 2
    assert " policy --store 'a b'\n" in result.stderr


def test_unknown_command_is_answered_with_the_nearest_of_all_commands() -> None:
    result = CliRunner().invoke(cli, ["transition"])
    assert result.exit_code == 2
    assert "No such command 'transition'. Did you mean 'transitions'?" in result.stderr


def test_wrong_usage_is_exit_code_2() -> None:
    result = CliRunner().invoke(cli, ["transitions", "--credit", "gea"])
    assert result.exit_code == 2
    assert "Unknown credit method 'gea'." in result.stderr
    assert "Did you mean 'gae'?" in result.stderr


@pytest.mark.parametrize(
    "command",
    [
        "loop none",
        "policy --key k --flags none",
        "policy --key k --flags none --features none",
        "evaluate --key k --flags none",
        "promote --key k --flags none",
        "transitions --reward none.sql",
        "agreement --judge j --labels none.csv",
        "judge --endpoint http://localhost --model m --rubric none",
        "run --tasks none -- true",
        "weights --model none --output new --algorithm rft",
        "weights --model . --output new --algorithm rft --settings none",
        "serve --model none",
    ],
)
def test_a_named_file_that_does_not_exist_is_wrong_usage(
    command: str, traces: "Traces", monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    traces.call("a")
    traces.reward("a", 0.5)
    environment = {"LIGHTNING_STORE": traces.store()}
    monkeypatch.chdir(tmp_path)
    result = CliRunner(env=environment).invoke(cli, command.split(), catch_exceptions=False)
    assert result.exit_code == 2, result.output
    assert re.search(r"'none(\.csv|\.sql)?'", result.stderr)
    assert "Errno" not in result.stderr
    assert [*tmp_path.glob("new")] == []


def test_run_without_an_agent_is_wrong_usage(tmp_path: Path) -> None:
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('{"id": "a", "input": "1"}')
    result = CliRunner().invoke(cli, ["run", "--tasks", str(tasks)])
    assert result.exit_code == 2
    assert "Say how to run the agent: -- COMMAND, --url or --serve." in result.stderr


def _options(command: click.Command) -> Iterator[tuple[str, click.Parameter]]:
    if isinstance(command, click.Group):
        for name, child in commands(command).items():
            yield from ((f"{name} {path}", option) for path, option in _options(child))
    else:
        yield from ((str(option.name), option) for option in command.params)


def test_no_option_takes_a_number_that_is_not_finite() -> None:
    """click.FloatRange lets nan through every range, and inf through an open one; float both."""
    number = click.types.FloatParamType
    numbers = {path: option for path, option in _options(cli) if isinstance(option.type, number)}
    assert len(numbers) > 20
    for option in numbers.values():
        for text in ("nan", "inf"):
            with pytest.raises(click.BadParameter):
                option.type.convert(text, option, None)
    with pytest.raises(click.BadParameter):
        RangeOfRewards().convert("-inf,inf", None, None)


@pytest.mark.parametrize("option", ["--serve", "--grade-command"])
def test_a_command_whose_quote_is_not_closed_is_wrong_usage(option: str) -> None:
    result = CliRunner().invoke(cli, ["run", "--tasks", __file__, option, "python 'worker.py"])
    assert result.exit_code == 2, result.output
    assert f"Invalid value for '{option}'" in result.output
    assert "'python 'worker.py' cannot be split into words: No closing quotation" in result.output


@pytest.mark.parametrize(
    "words",
    [
        "transitions --shuffle-rewards -1",
        "transitions --idle 1e300",
        "policy --key a --flags f.json --since 9999999999999d",
        "policy --key a --flags f.json --since 9999999d",
        "policy --key a --flags f.json --until 0001-01-01T00:00+14:00",
        "policy --key a --flags f.json --until 1677-12-31",
        "policy --key a --flags f.json --since 200000d",
        "evaluate --key a --seed -1",
        "agreement --judge a --labels b --seed -1",
        "weights --model . --output b --seed -1",
    ],
)
def test_a_number_that_nothing_can_compute_with_is_wrong_usage(words: str) -> None:
    result = CliRunner().invoke(cli, words.split())
    assert result.exit_code == 2, result.output
    assert f"Invalid value for '{words.split()[-2]}'" in result.output
