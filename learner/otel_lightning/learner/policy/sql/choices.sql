-- The first choice of each rollout for a flag. A rollout without a model call is not staged: it is
-- a task by itself, and it has no reward.
WITH chosen AS (
    SELECT
        rollout_id,
        first({'arm': arm, 'propensity': propensity, 'policy_version': policy_version, 'time': "time"}
            ORDER BY "time" NULLS LAST, arm) AS choice
    FROM arms
    WHERE key = $key AND rollout_id IS NOT NULL
        AND ($since IS NULL OR "time" >= $since::TIMESTAMP_NS)
        AND ($until IS NULL OR "time" < $until::TIMESTAMP_NS)
    GROUP BY rollout_id
)
SELECT
    rollout_id, choice.arm, choice.propensity, choice.policy_version, choice."time",
    s.rollout,
    coalesce(s.task_hash, ('0x' || left(sha256(rollout_id), 16))::UBIGINT) AS task_hash,
    coalesce(s.outcome = 'open', FALSE) AS open
FROM chosen
LEFT JOIN staged_rollouts s USING (rollout_id)
ORDER BY rollout_id
