"""`lightning-learn promote`, `rollback` and `policies`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from otel_lightning.learner.commands.common import (
    FILE,
    REFUSED,
    expected_errors,
    flags_option,
    key_option,
    option,
    store_option,
)

if TYPE_CHECKING:
    from otel_lightning.learner.policy.ship import Change

dry_run_option = option(
    "--dry-run", is_flag=True, help="Print the change of each arm's share, but write nothing."
)


class Percent(click.ParamType[float]):
    """A share: `10%` or `0.1`."""

    name = "SHARE"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """Read a share above 0 and below 1."""
        text = str(value)
        try:
            share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            self.fail(f"'{value}' is no share such as 10% or 0.1.", param, ctx)
        if not 0 < share < 1:
            self.fail(f"'{value}' is not above 0% and below 100%.", param, ctx)
        return share


@click.command()
@store_option
@key_option
@flags_option
@option(
    "--version",
    command="promote",
    help="Version of the policy to promote.  [default: the newest whose gate passed]",
)
@option(
    "--canary",
    type=Percent(),
    help="Give the policy only this share of the traffic, such as 10%, and leave the rest to the "
    "live policy. By default the policy gets all traffic.",
)
@dry_run_option
def promote(  # noqa: PLR0913 - one parameter an option
    store: str,
    *,
    key: str,
    flags: Path,
    version: str | None,
    canary: float | None,
    dry_run: bool,
) -> None:
    """Put a policy that passed the gate into the flag file, for all traffic or as a canary."""
    with expected_errors():
        from otel_lightning.collector.store import open_store
        from otel_lightning.learner.policy import ship

        with open_store(store, create=False) as opened:
            try:
                change = ship.promote(
                    opened, key, flags, version=version, canary=canary, dry_run=dry_run
                )
            except ship.RefusedError as refusal:
                click.echo(str(refusal), err=True)
                raise click.exceptions.Exit(REFUSED) from refusal
    _show(change)
    if change.needs_provider:
        click.echo(
            "flagd's rules cannot express this policy: serve it with our OpenFeature provider "
            "(otel_lightning.instrumentation.provider). Other providers serve what they served."
        )
    if change.written:
        click.echo(f"Policy {change.served_version} is live in {flags}.")


@click.command()
@store_option
@key_option
@option(
    "--flags",
    type=FILE,
    command="rollback",
    help="The flagd flag file to restore.  [default: the one that was changed last]",
)
@dry_run_option
def rollback(store: str, *, key: str, flags: Path | None, dry_run: bool) -> None:
    """Restore the flag as it was before the last promotion."""
    with expected_errors():
        from otel_lightning.collector.store import open_store
        from otel_lightning.learner.policy import ship

        with open_store(store, create=False) as opened:
            change = ship.roll_back(opened, key, flags, dry_run=dry_run)
    _show(change)
    if change.written:
        former = (
            f"Policy {change.served_version}" if change.served_version else "The flag as it was"
        )
        click.echo(f"{former} is live again.")


@click.command()
@store_option
@option(
    "--key",
    command="policies",
    help="List only the policies of the flag with this key. By default all are listed.",
)
@option(
    "--flags",
    type=FILE,
    command="policies",
    help="Flagd flag file to compare the policies with.  [default: the one that was changed last]",
)
def policies(store: str, *, key: str | None, flags: Path | None) -> None:
    """List the stored policies, and which of them the flag file serves."""
    from rich.console import Console
    from rich.table import Table

    with expected_errors():
        from otel_lightning.collector.store import open_store
        from otel_lightning.learner.policy import ship
        from otel_lightning.learner.policy.versions import policies_of

        with open_store(store, create=False) as opened:
            rows = policies_of(opened, key)
            keys = sorted({row["key"] for row in rows})
            compared = [ship.compare(opened, one, flags) for one in keys]
    if not rows:
        click.echo("No policies. Learn one with: lightning-learn policy.")
        return
    table = Table()
    for column in ("key", "version", "status", "gain", "at least", "arms", "parent"):
        table.add_column(column, overflow="fold")
    for row in rows:
        gate, arms = row["gate"], row["arms"]
        shares = ", ".join(f"{arm} {share:.2%}" for arm, share in arms.items())
        table.add_row(
            row["key"], row["version"], row["status"], _signed(gate.get("gain")),
            _signed(gate.get("lower")), shares, row["parent"] or "",
        )  # fmt: skip
    Console().print(table)
    for sentence in compared:
        click.echo(sentence)


def _show(change: "Change") -> None:
    for arm in change.before | change.after:
        before, after = change.before.get(arm, 0.0), change.after.get(arm, 0.0)
        click.echo(f"{arm}: {before:.2%} -> {after:.2%}")


def _signed(value: float | None) -> str:
    return "" if value is None else f"{value:+.4f}"
