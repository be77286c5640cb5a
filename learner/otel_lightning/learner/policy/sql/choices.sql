-- The staged choices with task and outcome. The outcome is NULL if there is no reward, if there are
-- several (see `several_rewards`), or if the rollout is still open.
WITH still_open AS (
    SELECT rollout_id
    FROM rollout_ends
    WHERE $recent AND outcome = 'open' AND rollout_id IN (SELECT rollout_id FROM policy_recent)
)
SELECT
    c.rollout_id, c.arm, c.propensity, c.policy_version, c."time",
    if(r.rewards = 1 AND o.rollout_id IS NULL, r.value, NULL) AS outcome,
    o.rollout_id IS NOT NULL AS open,
    ('0x' || left(sha256(CASE
        WHEN k.task_id IS NOT NULL THEN k.task_id
        WHEN $by_user AND u.user_hash IS NOT NULL THEN u.user_hash
        ELSE coalesce(s.first_state, c.rollout_id)
    END), 16))::UBIGINT AS task_hash
FROM policy_choices c
LEFT JOIN policy_rewards r USING (rollout_id)
LEFT JOIN still_open o USING (rollout_id)
LEFT JOIN policy_tasks k USING (rollout_id)
LEFT JOIN policy_states s USING (rollout_id)
LEFT JOIN task_messages u ON u.state_hash = s.first_state
ORDER BY c."time" NULLS LAST, c.rollout_id
