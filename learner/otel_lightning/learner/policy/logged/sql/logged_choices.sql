-- The choices for some flags as they are recorded, without those of attempts that were lost.
CREATE OR REPLACE TEMP VIEW logged_choices AS
SELECT rollout_id, trace_id, span_id, key, arm, propensity, policy_version, "time"
FROM arms
WHERE key IN $keys AND rollout_id IS NOT NULL
    AND ($since IS NULL OR "time" >= $since::TIMESTAMP_NS)
    AND ($until IS NULL OR "time" < $until::TIMESTAMP_NS)
    AND rollout_id NOT IN (SELECT rollout_id FROM attempts WHERE status = 'lost' AND rollout_id IS NOT NULL)
