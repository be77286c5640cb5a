-- The same as `choices` where each rollout has one choice, at most one reward and one stated task. If
-- a rollout has several, there are several rows of it; one row too many is enough to know. Rows are
-- matched by 64-bit hashes of the ids, which costs half of what the ids cost. Two ids of a million
-- have the same hash with a probability of 3e-8; then there are several rows of one hash too, unless
-- only one of the two has a reward or a task. Each task is hashed once, not for each rollout.
WITH still_open AS (
    SELECT rollout_id
    FROM rollout_ends
    WHERE $recent AND outcome = 'open' AND rollout_id IN (SELECT rollout_id FROM policy_recent)
),
given AS (
    -- The view `rewards` says the same without scores, but DuckDB reads all of its columns.
    SELECT coalesce(rollout_id, placed_rollout_id) AS rollout_id, name, value, source
    FROM reward_events
    WHERE NOT $scored
    UNION ALL
    SELECT rollout_id, name, value, source FROM rewards WHERE $scored
),
rewarded AS (
    SELECT id_hash, value
    FROM (
        SELECT hash(rollout_id) AS id_hash, value
        FROM given
        WHERE rollout_id IS NOT NULL AND value IS NOT NULL AND $chosen
    )
    SEMI JOIN (
        SELECT hash(rollout_id) AS id_hash
        FROM llm_calls
        WHERE step IS NOT NULL AND rollout_id IS NOT NULL
    ) USING (id_hash)
),
tasks AS (
    SELECT hash(task_id) AS named, ('0x' || left(sha256(task_id), 16))::UBIGINT AS task_hash
    FROM (SELECT DISTINCT task_id FROM rollout_tasks)
),
stated AS (
    SELECT id_hash, task_hash
    FROM (SELECT hash(rollout_id) AS id_hash, hash(task_id) AS named FROM rollout_tasks)
    JOIN tasks USING (named)
),
choices AS (SELECT *, hash(rollout_id) AS id_hash FROM policy_choices)
SELECT
    c.id_hash, c.rollout_id, c.arm, c.propensity, c.policy_version, c."time", c.switched,
    r.value AS outcome, o.rollout_id IS NOT NULL AS open,
    if(
        k.task_hash IS NULL,
        ('0x' || left(sha256(j.task_id), 16))::UBIGINT,
        k.task_hash
    ) AS task_hash
FROM choices c
LEFT JOIN rewarded r USING (id_hash)
LEFT JOIN stated k USING (id_hash)
LEFT JOIN still_open o ON o.rollout_id = c.rollout_id
LEFT JOIN policy_judged_tasks j ON j.rollout_id = c.rollout_id
LIMIT $most
