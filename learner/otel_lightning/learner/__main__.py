"""`lightning-learn`, also as `python -m otel_lightning.learner`."""

import sys


def main() -> None:
    """Run the command line; a missing extra is one sentence, not a traceback."""
    try:
        from otel_lightning.learner.cli import cli

        cli(prog_name="lightning-learn")
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.startswith("otel_lightning"):
            raise
        sys.exit(
            f"lightning-learn needs the package '{missing.name}'. Install it with: "
            "pip install 'otel-lightning[learner]' (in a checkout: pip install -e '.[learner]')"
        )


if __name__ == "__main__":
    main()
