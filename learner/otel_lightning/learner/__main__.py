"""`lightning-learn`, also as `python -m otel_lightning.learner`."""

import signal
import sys

from otel_lightning.collector.process.standard_streams import open_missing, write_any_text


def main() -> None:
    """Run the command line; a missing extra is one sentence, not a traceback."""
    open_missing()
    write_any_text()
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        # A supervisor ends a command as Ctrl-C does, so that half-written files are removed.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        from otel_lightning.learner.cli import cli

        cli(prog_name="lightning-learn")
    except KeyboardInterrupt:  # during an import; a command handles it itself
        sys.exit("Aborted!")
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.startswith("otel_lightning"):
            raise
        extra = "serve" if missing.name in {"starlette", "uvicorn"} else "learner"
        sys.exit(
            f"lightning-learn needs the package '{missing.name}'. Install it with: "
            f"pip install 'otel-lightning[{extra}]' (in a checkout: pip install -e '.[{extra}]')"
        )


if __name__ == "__main__":
    main()
