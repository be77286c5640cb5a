"""Values that Mastra replaced in messages: secrets, and what is nested too deeply or too long.

By default Mastra replaces the value of each field that is named `key`, `token`, `password` and the
like, also in the arguments and results of tools. The model saw the value itself.
"""

import re

from otel_lightning.collector.derive.rows import LlmCall
from otel_lightning.collector.derive.text.json_text import dumps

DIALECT = "mastra"
"""The dialect of the calls in question: elsewhere these words may be what the model saw."""
REPLACED = re.compile(
    rb'"\[(?:MaxDepth|Circular|REDACTED|\xe2\x80\xa6\d+ more items)\]\\*"'
    rb'|\xe2\x80\xa6\[truncated\]|"__truncated":'
)
"""Replaces a value or a part of it in JSON, also in JSON that is a text itself."""


def has_any(call: LlmCall) -> bool:
    """Return whether Mastra replaced a value in the messages of a call; the call stays packed."""
    if call.dialect != DIALECT:
        return False
    sides = call.packed or map(dumps, (call.input_messages, call.output_messages))
    return any(side is not None and REPLACED.search(side) for side in sides)
