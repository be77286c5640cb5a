-- What the received says, in one form whatever the dialect. `lightning-ingest derive --rebuild` makes it anew.

CREATE TABLE llm_calls (
    trace_id VARCHAR NOT NULL,
    span_id VARCHAR NOT NULL,
    parent_span_id VARCHAR,
    rollout_id VARCHAR,
    step INTEGER,
    agent_name VARCHAR,
    service_name VARCHAR,
    start_time TIMESTAMP_NS,
    end_time TIMESTAMP_NS,
    dialect VARCHAR,
    operation VARCHAR,
    provider VARCHAR,
    request_model VARCHAR,
    response_model VARCHAR,
    response_id VARCHAR,
    request_params JSON,
    tool_definitions JSON,
    input_messages JSON,
    output_messages JSON,
    finish_reason VARCHAR,
    input_tokens BIGINT,
    output_tokens BIGINT,
    cached_input_tokens BIGINT,
    reasoning_tokens BIGINT,
    prompt_token_ids INTEGER[],
    completion_token_ids INTEGER[],
    completion_logprobs DOUBLE[],
    conversation_id VARCHAR,
    error_type VARCHAR,
    error_message VARCHAR,
    content VARCHAR,
    merged_span_ids VARCHAR[],
    state_hash VARCHAR,
    -- As output_messages and completion_token_ids tell: asking them reads all text.
    has_completion BOOLEAN
);

CREATE TABLE tool_calls (
    trace_id VARCHAR,
    span_id VARCHAR,
    rollout_id VARCHAR,
    llm_span_id VARCHAR,
    tool_call_id VARCHAR,
    name VARCHAR,
    arguments JSON,
    result JSON,
    error_type VARCHAR,
    start_time TIMESTAMP_NS,
    end_time TIMESTAMP_NS,
    source VARCHAR
);

CREATE TABLE agent_runs (
    trace_id VARCHAR NOT NULL,
    span_id VARCHAR NOT NULL,
    rollout_id VARCHAR,
    name VARCHAR,
    kind VARCHAR,
    parent_span_id VARCHAR,
    start_time TIMESTAMP_NS,
    end_time TIMESTAMP_NS
);

CREATE TABLE arms (
    trace_id VARCHAR,
    span_id VARCHAR,
    rollout_id VARCHAR,
    key VARCHAR NOT NULL,
    arm VARCHAR NOT NULL,
    propensity DOUBLE,
    policy_version VARCHAR,
    "time" TIMESTAMP_NS
);

-- Judgements as they came; the view `rewards` finds what they judge, however late either arrives.
CREATE TABLE reward_events (
    reward_id VARCHAR NOT NULL,
    trace_id VARCHAR,
    span_id VARCHAR,
    response_id VARCHAR,
    rollout_id VARCHAR,
    task_id VARCHAR,
    name VARCHAR NOT NULL,
    value DOUBLE,
    label VARCHAR,
    explanation VARCHAR,
    source VARCHAR,
    "time" TIMESTAMP_NS
);

CREATE TABLE rollout_tasks (rollout_id VARCHAR NOT NULL, task_id VARCHAR NOT NULL);

-- What ties a trace to others (conversation, response id, message history): the loader follows
-- these to the traces that new spans change. A key is the lower half of the MD5 of its text: all of
-- them are looked through with each refresh.
CREATE TABLE trace_keys (
    trace_id VARCHAR NOT NULL USING COMPRESSION dict_fsst,
    key UBIGINT NOT NULL
);

-- What arrived since the derived tables were last brought up to date: kind is `trace` or `log`
-- (a log record that names no trace). Written in the transaction that stores it. Once a trace is
-- looked at: how many spans it has, when it began, and an id of what it likely belongs to.
CREATE TABLE stale (
    kind VARCHAR NOT NULL,
    id VARCHAR NOT NULL,
    spans BIGINT,
    first_time TIMESTAMP_NS,
    near VARCHAR
);

CREATE TABLE unread_spans (trace_id VARCHAR NOT NULL, span_id VARCHAR NOT NULL, reason VARCHAR);
