INSERT INTO llm_calls BY NAME
SELECT
    id AS trace_id, left(id, 16) AS span_id, id AS rollout_id, 0::INTEGER AS step, 'desk' AS service_name,
    make_timestamp_ns(1750000000000000000 + n * 1000000) AS start_time,
    make_timestamp_ns(1750000000000000000 + n * 1000000 + 500000) AS end_time,
    'stop' AS finish_reason, 'chat' AS operation,
    '[{"role":"user","parts":[{"type":"text","content":"' || md5('question' || n // 4) || '"}]}]' AS input_messages,
    '[{"role":"assistant","parts":[{"type":"text","content":"' || md5('answer' || n) || '"}]}]' AS output_messages,
    sha256('state' || n // 4) AS state_hash, TRUE AS has_completion
FROM drawn;
INSERT INTO arms BY NAME
SELECT
    id AS trace_id, left(id, 16) AS span_id, id AS rollout_id, '$key' AS key,
    ['a', 'b', 'c', 'd'][$arm] AS arm, $mu[$arm]::DOUBLE AS propensity, 'logged' AS policy_version,
    make_timestamp_ns(1750000000000000000 + n * 1000000) AS "time"
FROM drawn;
INSERT INTO reward_events BY NAME
SELECT
    'reward' || n AS reward_id, id AS rollout_id, 'task_success' AS name,
    (luck < $means[$arm])::INT::DOUBLE AS value, 'log' AS source,
    make_timestamp_ns(1750000000000000000 + n * 1000000 + 600000) AS "time"
FROM drawn;
INSERT INTO rollout_tasks BY NAME
SELECT id AS rollout_id, 'task-' || n // 4 AS task_id FROM drawn
