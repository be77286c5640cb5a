-- The staged choices with task and outcome, in any order. The outcome is NULL if there is no reward,
-- if there are several (see `several_rewards`), or if the rollout is still open. The task is NULL
-- where nothing states its id (see `unnamed_tasks`).
WITH still_open AS (
    SELECT rollout_id
    FROM rollout_ends
    WHERE $recent AND outcome = 'open' AND rollout_id IN (SELECT rollout_id FROM policy_recent)
),
stated AS (SELECT rollout_id, min(task_id) AS task_id FROM rollout_tasks GROUP BY rollout_id)
SELECT
    c.rollout_id, c.arm, c.propensity, c.policy_version, c."time", c.switched,
    if(r.rewards = 1 AND o.rollout_id IS NULL, r.value, NULL) AS outcome,
    o.rollout_id IS NOT NULL AS open,
    ('0x' || left(sha256(coalesce(k.task_id, j.task_id)), 16))::UBIGINT AS task_hash
FROM policy_choices c
LEFT JOIN policy_rewards r USING (rollout_id)
LEFT JOIN still_open o USING (rollout_id)
LEFT JOIN stated k USING (rollout_id)
LEFT JOIN policy_judged_tasks j USING (rollout_id)
