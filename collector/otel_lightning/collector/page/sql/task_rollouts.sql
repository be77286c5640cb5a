SELECT
    rollout_id, task_id, service_name, epoch_ns(start_time) AS start_ns, epoch_ns(end_time) AS end_ns,
    llm_calls, tool_calls, errors, input_tokens, output_tokens, final_reward, outcome
FROM rollouts
WHERE task_id = $task
ORDER BY start_time DESC, rollout_id
LIMIT $rows
