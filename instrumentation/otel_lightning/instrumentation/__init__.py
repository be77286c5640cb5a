"""Runs in the agent's process: adds to OpenTelemetry's spans the data that learning needs.

Importing this package imports nothing more, for two reasons: the `.pth` file of our wheel imports
it at every start of Python with tracing, and the collector needs only `attributes`. So the public
names below are imported on first use.

Begin in `instrumentor.py`, which switches everything on; without a launcher, `start.py` calls it.

- Spans: `processor.py` adds data at the start and end of each span: ids of the rollout and the task
  (`identity.py`), arms (`arms.py`) and redaction (`privacy.py`; `logs.py` for log records;
  `error_texts.py` for errors).
- Model calls: `client.py` wraps the openai client. `model_call.py` finds the span of a call,
  `added_fields.py` requests token ids, `answers.py` and `wire.py` collect the answer, and
  `tools.py` makes spans of the tools that the agent runs itself.
- The bundled OpenAI instrumentation: `bundled*.py`, `unrecorded.py` and `overhead.py` correct it.
- Flags: `provider.py` serves learned policies through OpenFeature. `policy.py` does without
  OpenFeature: it changes the request. `flagd.py` reads the file for both.
- Export: `delivery.py`, `batches.py` and `encoding.py`.
- Warnings: `missing.py` names libraries that nothing records, `variables.py` misspelt variables.

`guard.py` keeps our errors from the agent, and `attributes.py` has the names that we write.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in `typing`, which takes longer to import than this package
if TYPE_CHECKING:
    from typing import Any

    from otel_lightning.instrumentation.identity import rollout
    from otel_lightning.instrumentation.rewards import evaluation_result

__all__ = ["evaluation_result", "rollout"]


def __getattr__(name: str) -> Any:
    if name == "evaluation_result":
        from otel_lightning.instrumentation.rewards import evaluation_result

        return evaluation_result
    if name == "rollout":
        from otel_lightning.instrumentation.identity import rollout

        return rollout
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
