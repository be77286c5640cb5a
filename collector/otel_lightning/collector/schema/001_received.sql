-- What was received, never rewritten. Attribute values are text: strings as they are, all else as JSON.

-- Which of these numbered files have run on this store. (No column default may be an expression:
-- Quack clients of DuckDB 1.5.5 fail to attach a store that has one.)
CREATE TABLE schema_migrations (version INTEGER NOT NULL, applied_at TIMESTAMP NOT NULL);

CREATE TABLE spans (
    trace_id VARCHAR NOT NULL,
    span_id VARCHAR NOT NULL,
    parent_span_id VARCHAR,
    name VARCHAR,
    kind VARCHAR,
    start_time TIMESTAMP_NS,
    end_time TIMESTAMP_NS,
    status_code VARCHAR,
    status_message VARCHAR,
    service_name VARCHAR,
    scope_name VARCHAR,
    scope_version VARCHAR,
    resource MAP(VARCHAR, VARCHAR),
    attributes MAP(VARCHAR, VARCHAR),
    events STRUCT("time" TIMESTAMP_NS, name VARCHAR, attributes MAP(VARCHAR, VARCHAR))[],
    links STRUCT(trace_id VARCHAR, span_id VARCHAR, attributes MAP(VARCHAR, VARCHAR))[],
    trace_state VARCHAR,
    flags UINTEGER,
    dropped_attributes_count UINTEGER,
    dropped_events_count UINTEGER,
    dropped_links_count UINTEGER,
    received_at TIMESTAMP_NS
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
    resource MAP(VARCHAR, VARCHAR),
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
