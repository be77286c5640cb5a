-- Tasks with one rollout: credit that compares rollouts of a task is 0 there.
SELECT count(*) AS tasks
FROM (SELECT task_hash FROM transition_rows GROUP BY task_hash HAVING count(*) FILTER (next_span_id IS NULL) = 1)
