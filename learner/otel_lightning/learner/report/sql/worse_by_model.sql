-- Tasks on which the fine-tuned model, served under its folder's name, does worse than its base.
WITH rates AS (
    SELECT
        task_id,
        avg(final_reward) FILTER (model = $before) AS before,
        avg(final_reward) FILTER (model = $after) AS after,
        count(*) FILTER (model = $before) AS tried_before,
        count(*) FILTER (model = $after) AS tried_after
    FROM rollout_rows
    WHERE task_id IS NOT NULL AND isfinite(final_reward) AND model IN ($before, $after)
    GROUP BY task_id
)
SELECT task_id AS task, before, after, tried_before, tried_after, count(*) OVER () AS compared
FROM rates
WHERE tried_before > 0 AND tried_after > 0
ORDER BY after - before, task_id
