"""The attributes that the bundled OpenAI instrumentation makes of a request of Responses.

It writes them at the end of the answer. If a stream fails, or is open when the process ends, its
span has no messages. So they are made with the instrumentation's own functions.
"""

import sys
from collections.abc import Mapping
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, Final

from opentelemetry.util.types import AttributeValue

WRAPPERS: Final = "opentelemetry.instrumentation.openai.v1.responses_wrappers"
"""Module of the instrumentation for Responses."""


def attributes(request: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """Return what the bundled instrumentation records of a request.

    Args:
        request: Arguments of the client's method.
    """
    module: Any = sys.modules.get(WRAPPERS)
    found: dict[str, AttributeValue] = {}
    if module is None or not request:
        return found
    # Only the two members of a span that the functions use.
    span = SimpleNamespace(set_attribute=found.__setitem__, is_recording=lambda: True)
    # A request that these functions cannot read is not recorded in a complete answer either.
    with suppress(Exception):
        stream = module.ResponseStream(
            span=span, response=SimpleNamespace(), start_time=0.0, request_kwargs=dict(request)
        )
        stream._cleanup_completed = True  # noqa: SLF001 - nothing is to be recorded at its end
        module.set_data_attributes(stream._traced_data, span)  # noqa: SLF001
    found.pop("gen_ai.output.messages", None)  # an empty list: nothing is known of the answer here
    return found
