-- The received rewards of each of these rollouts, added up as `transitions` does: of judgements of the
-- same thing under one name the last one counts, and each reward that was sent during the rollout.
-- Rewards of rules and judges do not count. Unlike in transitions, a rollout needs no call.
WITH chosen_rewards AS (
    SELECT reward_id, rollout_id, trace_id, span_id, name, value, source, "time"
    FROM rewards
    WHERE rollout_id IN $rollouts AND value IS NOT NULL AND NOT $given_later
        AND ($any_reward OR name = $reward)
),
calls_end AS (
    SELECT rollout_id, max(end_time) AS end_time
    FROM (
        SELECT rollout_id, end_time FROM llm_calls WHERE step IS NOT NULL
        UNION ALL
        SELECT rollout_id, NULL FROM chosen_rewards
    )
    WHERE rollout_id IN $rollouts
    GROUP BY rollout_id
),
agents_end AS (
    SELECT rollout_id, max(end_time) AS end_time
    FROM agent_runs
    WHERE rollout_id IN $rollouts
    GROUP BY rollout_id
),
places AS ($reward_places),
staged AS ($placed_rewards),
newest AS (
    SELECT
        *,
        if(emitted, reward_id, NULL) AS own,
        rank() OVER (PARTITION BY rollout_id, name, step, own ORDER BY "time" DESC NULLS LAST) AS place
    FROM staged
),
counted AS (
    SELECT rollout_id, name, max(value) AS value, min(value) <> max(value) AS contradicts
    FROM newest
    WHERE place = 1
    GROUP BY rollout_id, name, step, own
)
SELECT
    rollout_id, sum(value) AS value, bool_or(contradicts) AS contradicts,
    bool_and(isfinite(value)) AS finite,
    greatest(max(abs(value)), abs(sum(value))) > $huge AS huge, min(name) AS first_name, max(name) AS last_name
FROM counted
GROUP BY rollout_id
