-- The chosen rewards with the step that each one judges. A step of NULL is the whole rollout.
-- `emitted`: the agent sent it during the rollout, so it is a separate reward. It does not replace
-- an earlier judgement.
-- Several statements instead of one, so that each can use all of the memory limit.
CREATE OR REPLACE TEMP TABLE chosen_rewards AS
SELECT reward_id, rollout_id, trace_id, span_id, name, value, source, "time"
FROM rewards
WHERE rollout_id IS NOT NULL AND value IS NOT NULL AND $chosen;

CREATE OR REPLACE TEMP TABLE calls_end AS
SELECT rollout_id, max(end_time) AS end_time FROM llm_calls WHERE step IS NOT NULL GROUP BY rollout_id;

CREATE OR REPLACE TEMP TABLE agents_end AS
SELECT rollout_id, max(end_time) AS end_time FROM agent_runs GROUP BY rollout_id;

-- The spans that belong to a call: its own span, duplicate spans that were merged into it, and
-- spans of the tools that it requested.
CREATE OR REPLACE TEMP TABLE places AS
$reward_places;

CREATE OR REPLACE TEMP TABLE staged_rewards AS
$placed_rewards;

DROP TABLE chosen_rewards;
DROP TABLE calls_end;
DROP TABLE agents_end;
DROP TABLE places
