-- The choices for a flag as they are recorded: the first choices of the rollouts, if each rollout has
-- one. Finding out costs a third of `stage_choices`, which is right for any number of them.
CREATE OR REPLACE TEMP TABLE policy_choices AS
SELECT rollout_id, arm, propensity, policy_version, "time", FALSE AS switched
FROM arms
WHERE key = $key AND rollout_id IS NOT NULL
    AND ($since IS NULL OR "time" >= $since::TIMESTAMP_NS)
    AND ($until IS NULL OR "time" < $until::TIMESTAMP_NS)
    AND rollout_id NOT IN (SELECT rollout_id FROM attempts WHERE status = 'lost' AND rollout_id IS NOT NULL)
