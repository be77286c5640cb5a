WITH calls AS (
    SELECT * REPLACE (if(step = 0, input_messages, NULL) AS input_messages)
    FROM llm_calls
    WHERE
        list_contains($rollouts, rollout_id)
        AND start_time BETWEEN make_timestamp_ns($start_ns) AND make_timestamp_ns($end_ns) -- if: start_ns
        AND step BETWEEN 0 AND 30
),
shortened AS (
    SELECT
        *,
        -- part: short_messages
    FROM calls
)
SELECT
    rollout_id, step, epoch_ns(start_time) AS start_ns, finish_reason, error_type,
    if(length(output) < $most_text, output, NULL) AS answer,
    if(length(input) < $most_text, input, NULL) AS question
FROM shortened
ORDER BY rollout_id, step
