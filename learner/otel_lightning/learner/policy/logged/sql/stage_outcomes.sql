-- Rollouts that may still get a call or a reward. Only those with a recent call can be open, and the
-- view that decides is expensive.
CREATE OR REPLACE TEMP TABLE policy_recent AS
SELECT DISTINCT rollout_id
FROM llm_calls
WHERE end_time >= make_timestamp_ns($idle_before_ns) AND rollout_id IS NOT NULL
    -- The process of such an attempt has ended, so no further call comes.
    AND rollout_id NOT IN (
        SELECT rollout_id FROM attempts
        WHERE status IN ('ok', 'failed', 'timeout') AND rollout_id IS NOT NULL
    );

-- The task that a received judgement states for a rollout. There are few: most judgements name the
-- rollout only.
CREATE OR REPLACE TEMP TABLE policy_judged_tasks AS
SELECT r.rollout_id, min(e.task_id) AS task_id
FROM rewards r
JOIN (SELECT reward_id, task_id FROM judgements WHERE task_id IS NOT NULL) e USING (reward_id)
WHERE $received AND r.rollout_id IS NOT NULL
GROUP BY r.rollout_id
