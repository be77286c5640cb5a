SELECT
    rollout_id, task_id, service_name, epoch_ns(start_time) AS start_ns, epoch_ns(end_time) AS end_ns,
    llm_calls, tool_calls, errors, input_tokens, output_tokens, final_reward, outcome
FROM rollouts
WHERE
    rollout_id = $rollout
    AND ($at_ns IS NULL OR start_time = make_timestamp_ns($at_ns))
