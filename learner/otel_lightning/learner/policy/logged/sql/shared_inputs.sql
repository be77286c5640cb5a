-- Number of first states that rollouts of several task ids saw, among one of $every states.
WITH first_calls AS (
    SELECT hash(rollout_id) AS id_hash, hash(state_hash) AS state
    FROM (
        SELECT rollout_id, state_hash
        FROM llm_calls
        WHERE step = 0 AND rollout_id IS NOT NULL AND hash(state_hash) % $every = 0
    )
    WHERE state_hash IS NOT NULL
),
stated AS (
    SELECT hash(rollout_id) AS id_hash, task_id FROM rollout_tasks
    UNION ALL
    SELECT hash(rollout_id) AS id_hash, task_id FROM policy_judged_tasks
)
SELECT count(*)
FROM (
    SELECT state
    FROM first_calls
    JOIN stated USING (id_hash)
    GROUP BY state
    HAVING min(task_id) <> max(task_id)
)
