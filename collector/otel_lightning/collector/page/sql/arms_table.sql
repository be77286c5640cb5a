-- Each task counts once, as in the report of a policy: rollouts of one task are not independent. The
-- interval is a normal approximation. The outcome of a rollout is the sum of its rewards, because a
-- return is discounted, and the first call may have failed.
WITH firsts AS (
    SELECT
        rollout_id, arm, any_value(task_hash) AS task, sum(reward) AS outcome,
        arg_min(propensity, step) AS propensity
    FROM transition_rows
    WHERE arm_key = $key
    GROUP BY rollout_id, arm
),
tasks AS (
    SELECT
        arm, task, avg(outcome) AS mean, count(*) AS rollouts, min(propensity) AS least, max(propensity) AS most,
        sum(1 / propensity) AS weights, sum((1 / propensity) ^ 2) AS squared_weights,
        max(1 / propensity) AS largest
    FROM firsts
    GROUP BY arm, task
)
SELECT
    arm, sum(rollouts)::BIGINT AS rollouts, count(*) AS tasks, avg(mean) AS mean, min(least) AS least,
    max(most) AS most, sum(weights) AS weights, sum(squared_weights) AS squared_weights, max(largest) AS largest,
    1.96 * stddev_samp(mean) / sqrt(count(*)) AS half
FROM tasks
GROUP BY arm
ORDER BY mean DESC NULLS LAST, arm
