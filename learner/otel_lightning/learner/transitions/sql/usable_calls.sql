SELECT coalesce(sum(usable_calls), 0)::BIGINT AS calls
FROM staged_rollouts
WHERE excluded IS NULL AND task_hash IN (SELECT task_hash FROM changed_tasks)
