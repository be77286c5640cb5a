-- The interval is a normal approximation that counts rollouts of one task as one draw.
WITH firsts AS (
    SELECT
        rollout_id, arm, any_value(task_hash) AS task, arg_min(return_to_go, step) AS outcome,
        arg_min(propensity, step) AS propensity
    FROM transition_rows
    WHERE arm_key = $key
    GROUP BY rollout_id, arm
),
means AS (
    SELECT
        arm, count(*) AS rollouts, count(DISTINCT task) AS tasks, avg(outcome) AS mean,
        min(propensity) AS least, max(propensity) AS most,
        sum(1 / propensity) AS weights, sum((1 / propensity) ^ 2) AS squared_weights, max(1 / propensity) AS largest
    FROM firsts
    GROUP BY arm
),
parts AS (
    SELECT f.arm, f.task, sum(f.outcome - m.mean) AS off
    FROM firsts f
    JOIN means m ON m.arm = f.arm
    GROUP BY f.arm, f.task
),
spread AS (SELECT arm, sum(off ^ 2) AS squares FROM parts GROUP BY arm)
SELECT m.*, if(m.tasks > 1, 1.96 * sqrt(s.squares * m.tasks / (m.tasks - 1)) / m.rollouts, NULL) AS half
FROM means m
JOIN spread s ON s.arm = m.arm
ORDER BY m.mean DESC NULLS LAST, m.arm
