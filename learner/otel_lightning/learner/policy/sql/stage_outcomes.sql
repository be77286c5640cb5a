-- The reward of each rollout that has one reward. Rollouts with several need the rules for repeated
-- judgements, which `several_rewards` applies to them only.
CREATE OR REPLACE TEMP TABLE policy_rewards AS
SELECT rollout_id, any_value(value) AS value, count(*) AS rewards, bool_and(isfinite(value)) AS finite
FROM rewards
SEMI JOIN (SELECT rollout_id FROM llm_calls WHERE step IS NOT NULL) USING (rollout_id)
WHERE rollout_id IS NOT NULL AND value IS NOT NULL AND $chosen
GROUP BY rollout_id;

-- Rollouts that may still get a call or a reward. Only those with a recent call can be open, and the
-- view that decides is expensive.
CREATE OR REPLACE TEMP TABLE policy_recent AS
SELECT DISTINCT rollout_id
FROM llm_calls
WHERE end_time >= make_timestamp_ns($idle_before_ns) AND rollout_id IS NOT NULL;

-- The task that a received judgement states for a rollout. There are few: most judgements name the
-- rollout only.
CREATE OR REPLACE TEMP TABLE policy_judged_tasks AS
SELECT r.rollout_id, min(e.task_id) AS task_id
FROM rewards r
JOIN (SELECT reward_id, task_id FROM judgements WHERE task_id IS NOT NULL) e USING (reward_id)
WHERE $received AND r.rollout_id IS NOT NULL
GROUP BY r.rollout_id
