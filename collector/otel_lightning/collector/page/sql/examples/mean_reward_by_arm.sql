SELECT arm_key, arm, count(*) AS rollouts, avg(outcome) AS mean
FROM (
    SELECT arm_key, arm, sum(reward) AS outcome
    FROM transition_rows GROUP BY arm_key, arm, rollout_id
) GROUP BY ALL ORDER BY ALL
