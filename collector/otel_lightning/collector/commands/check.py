"""`lightning-ingest check` and `doctor`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from otel_lightning.collector.commands.options import STORE
from otel_lightning.collector.terminal.command_line import expected_errors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_lightning.collector.check.counts import Finding
    from otel_lightning.collector.check.sender_variables import Fault


@click.command()
@STORE
@click.option("--deep", is_flag=True, envvar="LIGHTNING_CHECK_DEEP",
              help="Also read the whole spool and all ids, derive again, and compare.")  # fmt: skip
@click.option("--sample", type=click.IntRange(min=1), envvar="LIGHTNING_CHECK_SAMPLE",
              help="With --deep: number of traces to derive again.  [default: all]")  # fmt: skip
def check(store: Path, *, deep: bool, sample: int | None) -> None:
    """Count the stored rows and check the store; exit code 1 if there is a fault."""
    from otel_lightning.collector.store.print_rows import printable

    with expected_errors():
        findings = _findings(store, sample, deep=deep)
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        mark = "" if finding.is_fine else click.style("  <- look here", fg="red")
        click.echo(f"{finding.name:>{width}}  {printable(finding.value)}{mark}")
    if not all(finding.is_fine for finding in findings):
        raise SystemExit(1)
    click.echo("No faults were found.")


def _findings(store: Path, sample: int | None, *, deep: bool) -> "list[Finding]":
    """Check a store, also one that cannot be opened; the disks come last."""
    from otel_lightning.collector.check.counts import check_disks, check_store, check_unopened
    from otel_lightning.collector.check.deep import check_deep
    from otel_lightning.collector.store import StoreError, check_server, open_store

    disks: list[Finding] = []
    try:
        disks = check_disks(store)
        with open_store(store, read_only=True) as opened:
            check_server(opened)
            findings = check_store(opened, store)
            if deep:
                findings += check_deep(opened, store, sample)
    except StoreError as error:
        if not store.exists():
            raise
        findings = check_unopened(store, error)
    return findings + disks


@click.command()
@STORE
def doctor(store: Path) -> None:
    """Find faults in the data that harm learning; exit code 1 if there are any.

    Each is shown with its count, an example and the remedy. If nothing was received, or there is no
    store, faults in OpenTelemetry's variables of this shell are shown, too: run it where the agent
    is started.
    """
    from otel_lightning.collector.check.doctor import EMPTY, NO_REWARDS, diagnose, lacks_rewards
    from otel_lightning.collector.check.sender_variables import faults_here
    from otel_lightning.collector.store import check_server, open_store
    from otel_lightning.collector.store.print_rows import printable

    if not store.exists():
        _tell(faults_here(None))
    with expected_errors(), open_store(store, read_only=True) as opened:
        check_server(opened)
        problems = diagnose(opened)
        unrewarded = lacks_rewards(opened)
        is_empty = any(problem.name == EMPTY for problem in problems)
        variables = faults_here(opened.server) if is_empty else []
    for problem in problems:
        # Both quote names that senders chose.
        click.echo(printable(problem.headline))
        click.echo(f"    such as  {printable(problem.example)}")
        click.echo(f"    remedy   {problem.remedy}")
    _tell(variables)
    if not problems:
        click.echo("No faults were found in the traces.")
    if unrewarded:
        click.echo(NO_REWARDS)
    if problems:
        raise SystemExit(1)


def _tell(variables: "Sequence[Fault]") -> None:
    """Print what is wrong with the variables of this shell."""
    from otel_lightning.collector.store.print_rows import printable

    for fault in variables:
        click.echo(printable(f"In this shell: {fault.setting}: {fault.fault}"))
        click.echo(printable(f"    remedy   {fault.remedy}"))
