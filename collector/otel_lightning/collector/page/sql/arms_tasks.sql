-- Tasks on which the arms differ most.
WITH outcomes AS (
    SELECT task_id, arm, sum(reward) AS outcome
    FROM transition_rows
    WHERE arm_key = $key AND task_id IS NOT NULL
    GROUP BY task_id, arm, rollout_id
),
cells AS (
    SELECT task_id, arm, avg(outcome) AS mean, count(*) AS rollouts
    FROM outcomes
    GROUP BY task_id, arm
)
SELECT
    task_id, max(mean) - min(mean) AS apart, arg_max(arm, mean) AS best, max(mean) AS most,
    arg_min(arm, mean) AS worst, min(mean) AS least, sum(rollouts)::BIGINT AS rollouts
FROM cells
GROUP BY task_id
HAVING count(*) > 1
ORDER BY apart DESC, rollouts DESC, task_id
LIMIT 10
