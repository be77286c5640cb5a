-- The rows before one, the nearest first.
SELECT
    rollout_id, task_id, service_name, agent_name, model, epoch_ns(start_time) AS start_ns,
    epoch_ns(end_time) AS end_ns, llm_calls, tool_calls, failed_calls + failed_tools AS errors, input_tokens,
    output_tokens, arms, final_reward, outcome, NULL::DOUBLE AS sort_key
FROM rollout_rows
WHERE
    ($service IS NULL OR service_name = $service)
    AND ($agent IS NULL OR agent_name = $agent)
    AND ($task IS NULL OR task_id = $task)
    AND ($outcome IS NULL OR outcome = $outcome)
    AND ($arm IS NULL OR list_contains(arms, $arm))
    AND ($least_reward IS NULL OR final_reward >= $least_reward)
    AND ($most_reward IS NULL OR final_reward <= $most_reward)
    AND ($rewarded IS NULL OR (final_reward IS NOT NULL) = $rewarded)
    AND ($least_calls IS NULL OR llm_calls >= $least_calls)
    AND ($least_errors IS NULL OR failed_calls + failed_tools >= $least_errors)
    AND ($id IS NULL OR starts_with(rollout_id, $id) OR starts_with(task_id, $id))
    AND (
        $excluded IS NULL
        OR rollout_id IN (SELECT t.rollout_id FROM transition_rollouts t WHERE t.excluded = $excluded)
    )
    AND start_time >= make_timestamp_ns($after_ns)
    AND (start_time > make_timestamp_ns($after_ns) OR rollout_id < $after_id)
ORDER BY start_time, rollout_id DESC
LIMIT $rows
