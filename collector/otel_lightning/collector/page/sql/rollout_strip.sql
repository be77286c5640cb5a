-- At most 240 cells; each shows the advantage of largest magnitude among its steps.
SELECT
    step // $steps_per_cell AS cell,
    min(step) AS first_step,
    arg_max(advantage, abs(advantage)) AS advantage,
    arg_max(step, abs(advantage)) AS step
FROM transition_rows
WHERE task_hash = $task_hash::UBIGINT AND rollout_id = $rollout AND advantage IS NOT NULL
GROUP BY cell
ORDER BY cell
