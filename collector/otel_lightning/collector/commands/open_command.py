"""The command `lightning-ingest open`."""

from pathlib import Path

import click

from otel_lightning.collector.command_line import PEM, STORE, client_of, expected_errors


@click.command("open")
@click.argument("target", required=False)
@click.option("--no-browser", is_flag=True, envvar="LIGHTNING_NO_BROWSER",
              help="Only print the link.")  # fmt: skip
@click.option("--client-cert", type=PEM, envvar="LIGHTNING_CLIENT_CERT",
              help="Client certificate, if a running lightning-ingest requires one.")  # fmt: skip
@click.option("--client-key", type=PEM, envvar="LIGHTNING_CLIENT_KEY",
              help="Private key of --client-cert.")  # fmt: skip
@STORE
def open_command(
    *,
    target: str | None,
    no_browser: bool,
    client_cert: Path | None,
    client_key: Path | None,
    store: Path,
) -> None:
    """Open the web page of the running ingester in a browser.

    TARGET is the id of a rollout, or a path such as /ui/runs. The link is valid once, for a minute.
    """
    from otel_lightning.collector.commands.open_page import has_browser, page_link, start_browser

    client = client_of(client_cert, client_key)
    with expected_errors():
        link = page_link(store, target, client)
    click.echo(link)
    if not no_browser and has_browser() and not start_browser(link):
        click.echo("No browser was found: open the link within a minute.", err=True)
