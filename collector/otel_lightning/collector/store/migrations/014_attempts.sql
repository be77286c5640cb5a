-- What `lightning-learn run` did. Its journal comes as log records, so it is durable before it is
-- acknowledged, comes from any machine, and is stored once however often it is sent.

-- The newest text of each task.
CREATE VIEW tasks AS
SELECT
    said ->> '$.task_id' AS task_id,
    said -> '$.input' AS input,
    said -> '$.expected' AS expected,
    said -> '$.metadata' AS metadata,
    said ->> '$.fingerprint' AS fingerprint,
    "time"
FROM (SELECT "time", body::JSON AS said FROM logs WHERE event_name = 'lightning.task' AND json_valid(body))
QUALIFY row_number() OVER (PARTITION BY said ->> '$.task_id' ORDER BY "time" DESC, said ->> '$.fingerprint') = 1;

-- Each attempt at a task, and how it ended.
CREATE VIEW attempts AS
SELECT
    said ->> '$.run_id' AS run_id,
    said ->> '$.rollout_id' AS rollout_id,
    said ->> '$.task_id' AS task_id,
    (said ->> '$.sample')::INTEGER AS sample,
    (said ->> '$.attempt')::INTEGER AS attempt,
    said ->> '$.arm' AS arm,
    said ->> '$.model' AS model,
    (said ->> '$.seed')::BIGINT AS seed,
    said ->> '$.status' AS status,
    (said ->> '$.exit_code')::INTEGER AS exit_code,
    said ->> '$.reason' AS reason,
    make_timestamp_ns((said ->> '$.started')::BIGINT) AS started,
    make_timestamp_ns((said ->> '$.ended')::BIGINT) AS ended,
    (said ->> '$.cpu_seconds')::DOUBLE AS cpu_seconds,
    (said ->> '$.left_processes')::INTEGER AS left_processes,
    attributes['output'] AS output,
    attributes['errors'] AS errors
FROM (
    SELECT body::JSON AS said, attributes
    FROM logs
    WHERE event_name = 'lightning.attempt' AND json_valid(body)
);
