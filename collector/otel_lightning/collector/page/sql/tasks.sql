-- Tasks with rollouts of different rewards come first: they can teach something.
SELECT
    task_id, count(*) AS rollouts, count(final_reward) AS rewarded, avg(final_reward) AS mean,
    min(final_reward) AS least, max(final_reward) AS most, epoch_ns(max(start_time)) AS newest_ns
FROM rollout_rows
WHERE task_id IS NOT NULL AND ($start IS NULL OR starts_with(task_id, $start))
GROUP BY task_id
ORDER BY most - least DESC NULLS LAST, rollouts DESC, task_id
LIMIT $rows
