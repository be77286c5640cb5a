-- The mean outcome of each arm by day; as in `arms_table`, the outcome is the sum of the rewards.
WITH outcomes AS (
    SELECT rollout_id, arm, sum(reward) AS outcome
    FROM transition_rows
    WHERE arm_key = $key
    GROUP BY rollout_id, arm
)
SELECT
    o.arm, epoch_ns(date_trunc('day', r.start_time)::TIMESTAMP) AS day_ns, count(*) AS rollouts,
    avg(o.outcome) AS mean
FROM outcomes o
JOIN rollout_rows r ON r.rollout_id = o.rollout_id
GROUP BY ALL
ORDER BY day_ns, o.arm
