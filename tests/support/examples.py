"""How many examples Hypothesis tries: a quarter in `make test`, all in `make test-ci`."""

from hypothesis import settings

QUICK, THOROUGH = "quick", "otel-lightning"
"""Names of the profiles; `pytest --hypothesis-profile=quick` chooses one."""
EXAMPLES = {QUICK: 25, THOROUGH: 100}
"""Examples of a test that names no number of its own."""


def examples(number: int) -> settings:
    """Set the examples of one test under `THOROUGH`; under `QUICK` it tries a quarter of them."""
    share = settings.default.max_examples / EXAMPLES[THOROUGH] if settings.default else 1
    return settings(max_examples=max(1, round(number * share)))
