-- What was received, never rewritten. Attribute values are text: strings as they are, all else as JSON.

-- Which of these numbered files have run on this store. (No column default may be an expression:
-- Quack clients of DuckDB 1.5.5 fail to attach a store that has one.)
CREATE TABLE schema_migrations (version INTEGER NOT NULL, applied_at TIMESTAMP NOT NULL);

-- Short texts that come again and again are compressed by dictionary, all other text by zstd. A map
-- cannot be, so a resource, which all spans of a process repeat, is kept as the JSON that it is read from.
CREATE TABLE spans (
    trace_id VARCHAR NOT NULL USING COMPRESSION dict_fsst,
    span_id VARCHAR NOT NULL USING COMPRESSION dict_fsst,
    parent_span_id VARCHAR USING COMPRESSION dict_fsst,
    name VARCHAR USING COMPRESSION dict_fsst,
    kind VARCHAR USING COMPRESSION dict_fsst,
    start_time TIMESTAMP_NS,
    end_time TIMESTAMP_NS,
    status_code VARCHAR USING COMPRESSION dict_fsst,
    status_message VARCHAR USING COMPRESSION dict_fsst,
    service_name VARCHAR USING COMPRESSION dict_fsst,
    scope_name VARCHAR USING COMPRESSION dict_fsst,
    scope_version VARCHAR USING COMPRESSION dict_fsst,
    resource_json VARCHAR USING COMPRESSION dict_fsst,
    resource MAP(VARCHAR, VARCHAR) GENERATED ALWAYS AS (resource_json::JSON::MAP(VARCHAR, VARCHAR)),
    attributes MAP(VARCHAR, VARCHAR),
    events STRUCT("time" TIMESTAMP_NS, name VARCHAR, attributes MAP(VARCHAR, VARCHAR))[],
    links STRUCT(trace_id VARCHAR, span_id VARCHAR, attributes MAP(VARCHAR, VARCHAR))[],
    trace_state VARCHAR USING COMPRESSION dict_fsst,
    flags UINTEGER,
    dropped_attributes_count UINTEGER,
    dropped_events_count UINTEGER,
    dropped_links_count UINTEGER,
    received_at TIMESTAMP_NS,
    -- What is asked for most, beside the map: a column of its own is read a hundred times faster.
    "gen_ai.operation.name" VARCHAR USING COMPRESSION dict_fsst,
    "gen_ai.provider.name" VARCHAR USING COMPRESSION dict_fsst,
    "gen_ai.system" VARCHAR USING COMPRESSION dict_fsst,
    "gen_ai.request.model" VARCHAR USING COMPRESSION dict_fsst,
    "gen_ai.response.model" VARCHAR USING COMPRESSION dict_fsst,
    "gen_ai.conversation.id" VARCHAR USING COMPRESSION dict_fsst,
    "gen_ai.agent.name" VARCHAR USING COMPRESSION dict_fsst,
    "gen_ai.tool.name" VARCHAR USING COMPRESSION dict_fsst,
    "gen_ai.usage.input_tokens" VARCHAR USING COMPRESSION dict_fsst,
    "gen_ai.usage.output_tokens" VARCHAR USING COMPRESSION dict_fsst,
    "openinference.span.kind" VARCHAR USING COMPRESSION dict_fsst,
    "llm.model_name" VARCHAR USING COMPRESSION dict_fsst,
    "session.id" VARCHAR USING COMPRESSION dict_fsst,
    "lightning.rollout.id" VARCHAR USING COMPRESSION dict_fsst,
    "lightning.task.id" VARCHAR USING COMPRESSION dict_fsst,
    "error.type" VARCHAR USING COMPRESSION dict_fsst
);

-- A log record has no id on the wire: log_id is the hash of its content and, where one request
-- carries the same content several times, which of them it is.
CREATE TABLE logs (
    log_id VARCHAR NOT NULL,
    "time" TIMESTAMP_NS,
    observed_time TIMESTAMP_NS,
    trace_id VARCHAR,
    span_id VARCHAR,
    event_name VARCHAR,
    severity VARCHAR,
    body VARCHAR,
    attributes MAP(VARCHAR, VARCHAR),
    resource_json VARCHAR USING COMPRESSION dict_fsst,
    resource MAP(VARCHAR, VARCHAR) GENERATED ALWAYS AS (resource_json::JSON::MAP(VARCHAR, VARCHAR)),
    service_name VARCHAR,
    scope_name VARCHAR,
    received_at TIMESTAMP_NS
);

-- What could not be stored and why; a whole body that could not be decoded lies in `file`.
CREATE TABLE rejected (
    received_at TIMESTAMP_NS,
    signal VARCHAR,
    reason VARCHAR,
    file VARCHAR
);

-- How far the loader has read the spool; written in the same transaction as the rows.
CREATE TABLE spool_position (segment BIGINT NOT NULL, byte_offset BIGINT NOT NULL);
