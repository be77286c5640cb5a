"""Both commands are used alike, and each environment variable has one meaning and is documented."""

import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from support.environment_page import GROUPS, PAGE, commands, names, uses, written

from otel_lightning.instrumentation.variables import NAMES, corrections

ROOT = Path(__file__).parent.parent
SOURCES = ("instrumentation", "collector", "learner")
programs = pytest.mark.parametrize("program", GROUPS)


@pytest.mark.parametrize("variable", uses())
def test_a_variable_means_the_same_in_every_command(variable: str) -> None:
    meanings = {
        (
            option.opts[-1],
            option.help,
            str(option.default),
            option.multiple,
            isinstance(option.show_default, str) and option.show_default,
        )
        for _, _, option in uses()[variable]
    }
    assert len(meanings) == 1, f"pass command=… to option(): {meanings}"


def test_every_option_has_a_variable() -> None:
    for program, group in GROUPS.items():
        for name, command in commands(group).items():
            options = [p for p in command.params if isinstance(p, click.Option)]
            without = [o.opts for o in options if not o.envvar]
            assert not without, f"{program} {name}"


def test_the_page_of_variables_is_up_to_date() -> None:
    assert PAGE.read_text() == written(), "run: python tests/support/environment_page.py"


def test_the_names_by_which_misspelt_variables_are_found_are_those_of_the_page() -> None:
    assert NAMES.read_text() == names(), "run: python tests/support/environment_page.py"


@pytest.mark.parametrize(
    ("program", "command", "misspelt", "meant"),
    [
        ("lightning-ingest", "load", "LIGHTNING_STROE", "LIGHTNING_STORE"),
        ("lightning-ingest", "sql", "LIGHTNING_FORMAT", "LIGHTNING_SQL_FORMAT"),
        ("lightning-learn", "weights", "LIGHTNING_MODLE", "LIGHTNING_WEIGHTS_MODEL"),
    ],
)
def test_a_misspelt_variable_is_named_with_the_nearest(
    program: str, command: str, misspelt: str, meant: str
) -> None:
    environment = {misspelt: "x", "LIGHTNING_RUN_JOBS": "4", "LIGHTNING_USERNAME": "ann"}
    told = CliRunner().invoke(GROUPS[program], [command, "-h"], env=environment)
    warning = f"Warning: {misspelt} is ignored: otel-lightning has no such variable. "
    assert told.stderr == f"{warning}Did you mean {meant}?\n"


def test_no_variable_of_ours_is_taken_for_a_misspelt_one() -> None:
    assert not list(corrections(NAMES.read_text().split()))


def test_every_variable_in_the_source_is_documented() -> None:
    text = "".join(f.read_text() for root in SOURCES for f in (ROOT / root).rglob("*.py"))
    read = set(re.findall(r'"(LIGHTNING(?:_[A-Z]+)+)"', text))
    documented = set(re.findall(r"^\| `(LIGHTNING_[A-Z_]+)`", PAGE.read_text(), re.MULTILINE))
    assert read | uses().keys() == documented


@programs
def test_short_and_long_help_and_the_version_are_there(program: str) -> None:
    answers = {ask: CliRunner().invoke(GROUPS[program], [ask]) for ask in ("-h", "--help")}
    assert answers["-h"].output == answers["--help"].output
    assert "Commands:" in answers["-h"].output
    version = CliRunner().invoke(GROUPS[program], ["--version"])
    assert version.exit_code == 0
    assert re.search(r"version \d+\.\d+", version.output)


@programs
def test_every_command_has_short_help_that_shows_its_variables(program: str) -> None:
    for name, command in GROUPS[program].commands.items():
        told = CliRunner().invoke(GROUPS[program], [name, "-h"], terminal_width=200)
        assert told.exit_code == 0, told.output
        shown = set(re.findall(r"env var: (\w+)", " ".join(told.output.split())))
        options = [p for p in command.params if isinstance(p, click.Option)]
        assert shown == {o.envvar for o in options if o.envvar and not o.hidden}, name


@programs
def test_no_summary_is_cut_off(program: str) -> None:
    group = GROUPS[program]
    output = " ".join(CliRunner().invoke(group, ["-h"]).output.split())
    for name, command in group.commands.items():
        summary = " ".join((command.help or "").split("\n\n")[0].split())
        assert f"{name} {summary.split('. ')[0].removesuffix('.')}" in output


@programs
def test_every_help_has_the_store_first_and_one_pair_of_brackets(program: str) -> None:
    for name, command in commands(GROUPS[program]).items():
        options = [one.opts[0] for one in command.params if isinstance(one, click.Option)]
        assert "--store" not in options[1:], name
        output = " ".join(CliRunner().invoke(GROUPS[program], [name, "-h"]).output.split())
        assert "[default: " not in output, name


@programs
@pytest.mark.parametrize("cut", [-1, 1])
def test_a_mistyped_command_names_the_nearest(program: str, cut: int) -> None:
    for name in GROUPS[program].commands:
        wrong = name + name[-1] if cut > 0 else name[:cut]
        told = CliRunner().invoke(GROUPS[program], [wrong])
        assert told.exit_code == 2
        assert f"No such command '{wrong}'" in told.output
        assert f"'{name}'" in told.output


def test_who_asks_for_the_status_hears_which_commands_tell_it() -> None:
    told = CliRunner().invoke(GROUPS["lightning-ingest"], ["status"])
    assert told.exit_code == 2
    assert "No such command 'status'. `lightning-ingest check` counts" in told.output
    assert "`lightning-ingest doctor`" in told.output


@programs
def test_shells_can_complete_commands_as_documented(program: str) -> None:
    page = (ROOT / "docs" / "reference" / "commands.md").read_text()
    variable = f"_{program.upper().replace('-', '_')}_COMPLETE"
    assert f"{variable}=bash_source" in page
    environment = {variable: "bash_complete", "COMP_WORDS": f"{program} ", "COMP_CWORD": "1"}
    told = CliRunner().invoke(GROUPS[program], prog_name=program, env=environment)
    assert set(GROUPS[program].commands) <= set(re.findall(r"plain,([\w-]+)", told.output))
