-- The rewards to place: new ones that do not name their rollout or name a response, and stored ones
-- that waited for a response of the new calls.
CREATE OR REPLACE TEMP TABLE to_place AS
SELECT reward_id FROM new_reward_events WHERE rollout_id IS NULL OR response_id IS NOT NULL
UNION
SELECT reward_id
FROM reward_events
WHERE response_id IN (SELECT response_id FROM new_llm_calls WHERE response_id IS NOT NULL);

-- The rollouts whose row changes, as far as it is known before rewards are placed.
CREATE OR REPLACE TEMP TABLE touched AS
SELECT rollout_id FROM new_llm_calls WHERE rollout_id IS NOT NULL
UNION SELECT rollout_id FROM new_reward_events WHERE rollout_id IS NOT NULL
UNION SELECT rollout_id FROM new_arms WHERE rollout_id IS NOT NULL
UNION SELECT rollout_id FROM new_rollout_tasks
