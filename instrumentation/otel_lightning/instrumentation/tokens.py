"""Where our wrappers are put into the openai client."""

import functools

import wrapt

from otel_lightning.instrumentation import client
from otel_lightning.instrumentation.guard import never_raise


@never_raise
@functools.cache
def capture_tokens() -> None:
    """Put the wrappers in place, now or when openai is imported; a switch turns them on."""
    for module in client.ENDPOINTS:
        wrapt.register_post_import_hook(client.wrap, module)
