"""Install our wrappers in the openai client."""

import functools

import wrapt

from otel_lightning.instrumentation import client
from otel_lightning.instrumentation.guard import never_raise


@never_raise
@functools.cache
def capture_tokens() -> None:
    """Install the wrappers when openai is imported, or now; they work after `client.switch_on`."""
    for module in client.ENDPOINTS:
        wrapt.register_post_import_hook(client.wrap, module)
