-- Tasks on which the arms differ most.
WITH cells AS (
    SELECT task_id, arm, avg(return_to_go) AS mean, count(*) AS rollouts
    FROM transition_rows
    WHERE arm_key = $key AND task_id IS NOT NULL AND step = 0
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
