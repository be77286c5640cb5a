"""`lightning-ingest open`."""

from pathlib import Path

import click

from otel_lightning.collector.commands.options import CLIENT_CERT, CLIENT_KEY, STORE, client_of
from otel_lightning.collector.terminal.command_line import expected_errors


@click.command("open")
@STORE
@click.argument("target", required=False)
@click.option("--no-browser", is_flag=True, envvar="LIGHTNING_NO_BROWSER",
              help="Only print the link.")  # fmt: skip
@CLIENT_CERT
@CLIENT_KEY
def open_page(
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
    from otel_lightning.collector.page.link import has_browser, page_link, start_browser

    client = client_of(client_cert, client_key)
    with expected_errors():
        link = page_link(store, target, client)
    click.echo(link)
    if no_browser or not has_browser() or not start_browser(link):
        click.echo("Open this link in a browser within a minute; it works once.", err=True)
