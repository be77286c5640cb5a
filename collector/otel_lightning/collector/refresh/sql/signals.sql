-- What is known of the rollouts in `touched` beside their calls: task, arms and rewards. Rewards may
-- come from other traces, or from log records without a trace.
CREATE OR REPLACE TEMP TABLE signals AS
WITH tasks AS (
    SELECT rollout_id, min(task_id) AS task_id
    FROM rollout_tasks
    WHERE rollout_id IN (SELECT rollout_id FROM touched)
    GROUP BY rollout_id
),
flags AS (
    SELECT rollout_id, list(DISTINCT key || '=' || arm ORDER BY key || '=' || arm) AS arms
    FROM arms
    WHERE rollout_id IN (SELECT rollout_id FROM touched)
    GROUP BY rollout_id
),
placed AS (
    SELECT rollout_id, reward_id, value, "time", task_id
    FROM reward_events
    WHERE rollout_id IN (SELECT rollout_id FROM touched)
    UNION ALL
    -- A reward that names its rollout belongs to that one, wherever its carrier is.
    SELECT placed_rollout_id, reward_id, value, "time", task_id
    FROM reward_events
    WHERE rollout_id IS NULL AND placed_rollout_id IN (SELECT rollout_id FROM touched)
),
judged AS (
    SELECT
        rollout_id,
        -- The last reward counts and, of several at one time, the one with the greatest id: so the
        -- order in which they came has no effect.
        arg_max(value, {'time': "time", 'id': reward_id}) FILTER ("time" IS NOT NULL) AS final_reward,
        max("time") FILTER (value IS NOT NULL) AS "time",
        count(value) > 0 AS is_judged,
        min(task_id) AS task_id
    FROM placed
    GROUP BY rollout_id
)
SELECT
    rollout_id,
    coalesce(t.task_id, j.task_id) AS task_id,
    f.arms, j.final_reward, j."time" AS judged_time,
    coalesce(j.is_judged, FALSE) AS is_judged
FROM (SELECT DISTINCT rollout_id FROM touched)
LEFT JOIN tasks t USING (rollout_id)
LEFT JOIN flags f USING (rollout_id)
LEFT JOIN judged j USING (rollout_id)
