SELECT
    rollout_id, step, epoch_ns(start_time) AS start_ns, finish_reason, error_type,
    if(length(output_messages::VARCHAR) < $most_text, output_messages::VARCHAR, NULL) AS answer,
    if(step = 0 AND length(input_messages::VARCHAR) < $most_text, input_messages::VARCHAR, NULL) AS question
FROM llm_calls
WHERE
    list_contains($rollouts, rollout_id)
    AND start_time BETWEEN make_timestamp_ns($start_ns) AND make_timestamp_ns($end_ns) -- if: start_ns
    AND step BETWEEN 0 AND 30
ORDER BY rollout_id, step
