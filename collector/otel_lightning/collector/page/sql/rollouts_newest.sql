-- One row more than a page tells whether there is a next page.
SELECT
    rollout_id, task_id, service_name, epoch_ns(start_time) AS start_ns, epoch_ns(end_time) AS end_ns,
    llm_calls, tool_calls, errors, input_tokens, output_tokens, final_reward, outcome,
    epoch_ns(start_time)::DOUBLE AS sort_key
FROM rollouts
WHERE
    ($service IS NULL OR service_name = $service)
    AND ($task IS NULL OR task_id = $task)
    AND ($outcome IS NULL OR outcome = $outcome)
    AND ($least_reward IS NULL OR final_reward >= $least_reward)
    AND ($most_reward IS NULL OR final_reward <= $most_reward)
    AND ($rewarded IS NULL OR (final_reward IS NOT NULL) = $rewarded)
    AND ($least_calls IS NULL OR llm_calls >= $least_calls)
    AND ($least_errors IS NULL OR errors >= $least_errors)
    AND ($id IS NULL OR starts_with(rollout_id, $id))
    AND (
        $arm IS NULL
        OR rollout_id IN (SELECT a.rollout_id FROM arms a WHERE a.key = $arm_key AND a.arm = $arm)
    )
    AND (
        $excluded IS NULL
        OR rollout_id IN (SELECT t.rollout_id FROM transition_rollouts t WHERE t.excluded = $excluded)
    )
    AND (
        $after_ns IS NULL
        OR (
            start_time <= make_timestamp_ns($after_ns)
            AND (start_time < make_timestamp_ns($after_ns) OR rollout_id > $after_id)
        )
    )
ORDER BY start_time DESC, rollout_id
LIMIT $rows
