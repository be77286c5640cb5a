"""Rows of the view `transitions`, unchanged and with their text."""

import pyarrow as pa

from otel_lightning.learner.export.formats.rows import Format

TEXT, NUMBER, FLAG = pa.utf8(), pa.float64(), pa.bool_()

FORMAT = Format(
    summary="the view `transitions`, messages as JSON text in OpenTelemetry's form",
    statement="transitions",
    row=None,
    columns={
        "rollout_id": TEXT,
        "step": pa.int32(),
        "trace_id": TEXT,
        "span_id": TEXT,
        "agent_name": TEXT,
        "task_id": TEXT,
        "task_hash": TEXT,
        "split": TEXT,
        "state_hash": TEXT,
        "messages": TEXT,
        "tools": TEXT,
        "completion": TEXT,
        "arm_key": TEXT,
        "arm": TEXT,
        "propensity": NUMBER,
        "behavior_logprob": NUMBER,
        "policy_version": TEXT,
        "model": TEXT,
        "temperature": NUMBER,
        "prompt_token_ids": pa.list_(pa.int32()),
        "completion_token_ids": pa.list_(pa.int32()),
        "completion_logprobs": pa.list_(NUMBER),
        "reward": NUMBER,
        "return_to_go": NUMBER,
        "advantage": NUMBER,
        "terminated": FLAG,
        "truncated": FLAG,
        "next_span_id": TEXT,
    },
)
