-- Returns of the calls of a task that saw the same state.
SELECT
    count(*) AS visits, avg(t.return_to_go) AS mean_visit, stddev_samp(t.return_to_go) AS deviation_visit,
    avg(t.return_to_go) FILTER (t.rollout_id <> $rollout OR t.step <> $step) AS others_visit
FROM llm_calls c
JOIN transition_rows t ON t.rollout_id = c.rollout_id AND t.step = c.step
WHERE
    c.state_hash = $state
    AND t.task_hash = (SELECT task_hash FROM transition_rollouts WHERE rollout_id = $rollout LIMIT 1)
