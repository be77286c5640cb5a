"""`lightning-learn promote`, `rollback`, `policies` and `models`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from otel_lightning.collector.terminal.command_line import example
from otel_lightning.collector.terminal.next_command import next_command
from otel_lightning.collector.terminal.quantities import decimal
from otel_lightning.learner.commands.common import (
    FILE,
    REFUSED,
    expected_errors,
    option,
    store_option,
)

if TYPE_CHECKING:
    from rich.table import Table

    from otel_lightning.collector.store import Store
    from otel_lightning.learner.policy.serving.promotion import Change
    from otel_lightning.learner.promotions import Row
    from otel_lightning.learner.weights.pointer import PointerChange

key_option = option("--key", metavar="KEY", help="Key of the flag whose variants are the arms.")
optional_flags_option = option(
    "--flags", type=FILE, help="The flagd flag file that serves the arms."
)
live_option = option(
    "--live",
    metavar="LINK",
    type=click.Path(path_type=Path),
    help="Pointer to the live model, a symbolic link.  [default: promote: live beside the model's "
    "folder; rollback: the one that was changed last]",
)
dry_run_option = option(
    "--dry-run", is_flag=True, help="Print what would change, but write nothing."
)
UNFOLDED = 300
"""Width of a table in a file or a pipe, in characters: wide enough that no cell is folded."""


class Percent(click.ParamType[float]):
    """A share: `10%` or `0.1`."""

    name = "SHARE"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """Read a share above 0 and below 1."""
        from otel_lightning.learner.policy.serving.flag_document import SHARE_UNIT

        text = str(value)
        try:
            share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            self.fail(f"'{value}' is no share such as 10% or 0.1.", param, ctx)
        if not SHARE_UNIT <= share < 1:
            self.fail(f"'{value}' is not at least 0.01% and below 100%.", param, ctx)
        return share


@click.command(
    epilog=example("lightning-learn promote --key support-prompt --flags flags.json --canary 10%")
)
@store_option
@key_option
@optional_flags_option
@option(
    "--version",
    metavar="VERSION",
    command="promote",
    help="Version of the policy to promote.  [default: the newest whose gate passed]",
)
@option(
    "--canary",
    type=Percent(),
    help="Give the policy only this share of the traffic, such as 10%, and leave the rest to the "
    "live policy. By default the policy gets all traffic.",
)
@option(
    "--model",
    command="promote",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Promote this fine-tuned model instead of a policy: the folder that lightning-learn "
    "weights wrote.",
)
@live_option
@option(
    "--without-gate",
    is_flag=True,
    help="Promote a model that no gate has passed, such as the first one. By default a gate must "
    "have passed it against the live model.",
)
@dry_run_option
def promote(
    store: str, *, model: Path | None, live: Path | None, without_gate: bool, **options: Any
) -> None:
    """Put a policy that passed the gate into the flag file, or make a model the live one.

    With --key and --flags: a policy, for all traffic or as a canary.
    With --model: a fine-tuned model, by moving the pointer --live to its folder.
    """
    if model is None:
        if live is not None or without_gate:
            raise click.UsageError("--live and --without-gate are for models: give --model too.")
        _promote_policy(store, **options)
        return
    policy_options = [
        name for name in ("key", "flags", "version", "canary") if options[name] is not None
    ]
    if policy_options:
        raise click.UsageError(
            f"--{policy_options[0]} is for policies, so it cannot be used with --model."
        )
    with _opened(store) as opened:
        from otel_lightning.learner.weights import promotion

        moved = promotion.promote(
            opened, model, live, without_gate=without_gate, dry_run=options["dry_run"]
        )
    _show_moved(moved)


@contextmanager
def _opened(store: str) -> Iterator["Store"]:
    """Open an existing store; report expected errors, and exit with `REFUSED` if a gate refused."""
    with expected_errors():
        from otel_lightning.collector.store import open_store
        from otel_lightning.learner.errors import RefusedError

        try:
            with open_store(store, create=False) as opened:
                yield opened
        except RefusedError as refusal:
            click.echo(str(refusal), err=True)
            raise click.exceptions.Exit(REFUSED) from refusal


def _promote_policy(  # noqa: PLR0913 - one parameter an option
    store: str,
    *,
    key: str | None,
    flags: Path | None,
    version: str | None,
    canary: float | None,
    dry_run: bool,
) -> None:
    if key is None or flags is None:
        raise click.UsageError(
            "Give --key and --flags to promote a policy, or --model to promote a model."
        )
    with _opened(store) as opened:
        from otel_lightning.learner.policy.serving import promotion

        change = promotion.promote(
            opened, key, flags, version=version, canary=canary, dry_run=dry_run
        )
    _show(change)
    if change.needs_provider:
        click.echo(
            "flagd's rules cannot express this policy: serve it with our OpenFeature provider "
            "(otel_lightning.instrumentation.provider). Other providers serve what they served."
        )
    name = f"Policy {change.served_version}"
    part = "" if canary is None else f" for {100 * canary:.4g} % of the traffic"
    if change.written:
        click.echo(f"{name} is live in {flags}{part}.")
    else:
        click.echo(f"{name} would be live in {flags}{part}. Nothing was written (--dry-run).")


@click.command(epilog=example("lightning-learn rollback --key support-prompt"))
@store_option
@key_option
@option(
    "--flags",
    type=FILE,
    command="rollback",
    help="The flagd flag file to restore.  [default: the one that was changed last]",
)
@option(
    "--model",
    command="rollback",
    is_flag=True,
    help="Roll back a model instead of a policy.",
)
@live_option
@dry_run_option
def rollback(  # noqa: PLR0913 - one parameter an option
    store: str,
    *,
    key: str | None,
    flags: Path | None,
    model: bool,
    live: Path | None,
    dry_run: bool,
) -> None:
    """Restore the flag, or the live model, as it was before the last promotion.

    With --key: a policy. With --model or --live: a fine-tuned model.
    """
    if model or live is not None:
        if key is not None or flags is not None:
            raise click.UsageError("--key and --flags are of policies, --model and --live are not.")
        _roll_back_model(store, live, dry_run=dry_run)
        return
    if key is None:
        raise click.UsageError("Give --key to roll back a policy, or --model to roll back a model.")
    with _opened(store) as opened:
        from otel_lightning.learner.policy.serving import promotion

        change = promotion.roll_back(opened, key, flags, dry_run=dry_run)
    _show(change)
    restored = f"Policy {change.served_version}" if change.served_version else "The flag as it was"
    if change.is_restored:
        record = "Now it is recorded." if change.written else "Nothing was written (--dry-run)."
        reason = "the file was restored by hand, or the promotion was cut off"
        click.echo(f"{restored} is live already: {reason}. {record}")
    elif change.written:
        click.echo(f"{restored} is live again.")
    else:
        click.echo(f"{restored} would be live again. Nothing was written (--dry-run).")


def _roll_back_model(store: str, live: Path | None, *, dry_run: bool) -> None:
    with _opened(store) as opened:
        from otel_lightning.learner.weights import promotion

        moved = promotion.roll_back(opened, live, dry_run=dry_run)
    _show_moved(moved)


@click.command()
@store_option
@option(
    "--key",
    metavar="KEY",
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
    from rich.table import Table

    with _opened(store) as opened:
        from otel_lightning.learner.policy.serving.compare_record import describe_served
        from otel_lightning.learner.policy.serving.versions import policies_of

        keys = sorted({row["key"] for row in policies_of(opened, key)})
        compared = [describe_served(opened, flag, flags) for flag in keys]
        rows = policies_of(opened, key)  # as comparing has left them
    if not rows:
        learn = next_command(
            "lightning-learn policy", store, key=key or "KEY", flags=flags or "FILE"
        )
        click.echo(f"No policies. Learn one with: {learn}")
        return
    table = Table(box=None, pad_edge=False)
    for column in ("key", "version", "status", "gain", "at least", "arms", "parent"):
        # What `promote` takes is never broken over two lines, so that it can be copied.
        table.add_column(column, overflow="fold", no_wrap=column not in ("arms", "parent"))
    for row in rows:
        gate, arms, status = row["gate"], row["arms"], row["status"]
        if status == "candidate" and not gate.get("passed", True):
            status = "refused"
        if gate.get("shuffled") is not None:
            status = "control"
        shares = "\n".join(f"{arm} {share:.1%}" for arm, share in arms.items())
        table.add_row(
            row["key"], row["version"], status, _signed(gate.get("gain")),
            _signed(gate.get("lower")), shares, row["parent"] or "",
        )  # fmt: skip
    _print(table)
    for sentence in compared:
        click.echo(sentence)


@click.command()
@store_option
def models(store: str) -> None:
    """List the fine-tuned models, the verdicts of their gates, and which of them are live."""
    with _opened(store) as opened:
        from otel_lightning.learner.weights import promotion

        rows, live = promotion.models_of(opened), promotion.live_models(opened)
    listed = {name for row in rows for name in row["live"]}
    untrained = {name: folder for name, folder in live.items() if name not in listed}
    if not rows:
        tune = "lightning-learn weights --algorithm rft --model FOLDER --output FOLDER"
        click.echo(f"No models. Fine-tune one with: {next_command(tune, store)}")
    else:
        _print(_table_of_models(rows))
    for name, folder in untrained.items():
        click.echo(f"{name} leads to '{folder}', which was not trained with this store.")


def _table_of_models(rows: "list[Row]") -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in ("run", "algorithm", "gate by logs", "gain", "at least", "live at", "folder"):
        table.add_column(column, overflow="fold", no_wrap=column != "folder")
    for row in rows:
        folder = row["folder"] if row["exists"] else f"{row['folder']} (gone)"
        table.add_row(
            row["run_id"], row["algorithm"], row["outcome"], _signed(row["gain"]),
            _signed(row["lower"]), "\n".join(row["live"]), folder,
        )  # fmt: skip
    return table


def _print(table: "Table") -> None:
    """Print a table, which is folded to the width of a terminal, but not in a file or a pipe."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console.width = UNFOLDED
    console.print(table)


def _show_moved(moved: "PointerChange") -> None:
    before = f"'{moved.before}'" if moved.before else "no model"
    click.echo(f"{moved.live}: {before} -> '{moved.after}'")
    if moved.written:
        click.echo(
            f"'{moved.after}' is live at {moved.live}. A server that runs already keeps its model: "
            "restart it."
        )
    else:
        click.echo("Nothing was written (--dry-run).")


def _show(change: "Change") -> None:
    for arm in change.before | change.after:
        before, after = change.before.get(arm, 0.0), change.after.get(arm, 0.0)
        click.echo(f"{arm}: {before:.2%} -> {after:.2%}")
    if change.in_context:
        click.echo("A policy sees the input here: these shares are means over the logged inputs.")


def _signed(value: float | None) -> str:
    return "" if value is None else decimal(value, "+")
