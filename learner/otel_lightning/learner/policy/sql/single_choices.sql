-- The same as `choices` where each rollout has at most one reward and one stated task. If a rollout
-- has several, there are more rows than choices; one row too many is enough to know. Joining without
-- grouping costs half.
WITH still_open AS (
    SELECT rollout_id
    FROM rollout_ends
    WHERE $recent AND outcome = 'open' AND rollout_id IN (SELECT rollout_id FROM policy_recent)
),
rewarded AS (
    SELECT rollout_id, value
    FROM rewards
    SEMI JOIN (SELECT rollout_id FROM llm_calls WHERE step IS NOT NULL) USING (rollout_id)
    WHERE value IS NOT NULL AND $chosen
)
SELECT
    c.rollout_id, c.arm, c.propensity, c.policy_version, c."time", c.switched, r.value AS outcome,
    o.rollout_id IS NOT NULL AS open,
    ('0x' || left(sha256(coalesce(k.task_id, j.task_id)), 16))::UBIGINT AS task_hash
FROM policy_choices c
LEFT JOIN rewarded r USING (rollout_id)
LEFT JOIN still_open o USING (rollout_id)
LEFT JOIN rollout_tasks k USING (rollout_id)
LEFT JOIN policy_judged_tasks j USING (rollout_id)
LIMIT $most
