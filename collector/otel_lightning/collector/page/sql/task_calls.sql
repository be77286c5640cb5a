-- Of long data, such as an image as base64, only the beginning is read.
WITH calls AS (
    SELECT
        *,
        regexp_replace(output_messages::VARCHAR, $long_data, '\1…', 'g') AS output,
        if(step = 0, regexp_replace(input_messages::VARCHAR, $long_data, '\1…', 'g'), NULL) AS input
    FROM llm_calls
    WHERE
        list_contains($rollouts, rollout_id)
        AND start_time BETWEEN make_timestamp_ns($start_ns) AND make_timestamp_ns($end_ns) -- if: start_ns
        AND step BETWEEN 0 AND 30
)
SELECT
    rollout_id, step, epoch_ns(start_time) AS start_ns, finish_reason, error_type,
    if(length(output) < $most_text, output, NULL) AS answer,
    if(length(input) < $most_text, input, NULL) AS question
FROM calls
ORDER BY rollout_id, step
