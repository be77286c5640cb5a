"""`lightning-ingest`."""

import sys

from otel_lightning.collector.process.standard_streams import open_missing, write_any_text


def main() -> None:
    """Run the command line, or say how to install what it needs."""
    open_missing()
    write_any_text()
    if sys.platform == "win32":
        sys.exit(
            "lightning-ingest does not run on Windows: its durable writes need a POSIX system. "
            "Start it in WSL 2 or in a container; agents on Windows can send there."
        )
    try:
        from otel_lightning.collector.cli import main as run
    except KeyboardInterrupt:  # during an import; a command handles it itself
        sys.exit("Aborted!")
    except ModuleNotFoundError as error:
        if str(error.name).startswith("otel_lightning"):
            raise
        sys.exit(
            f"lightning-ingest needs the package '{error.name}'. Install it with: "
            "pip install 'otel-lightning[collector]' (in a checkout: pip install -e '.[collector]')"
        )
    run()


if __name__ == "__main__":
    main()
