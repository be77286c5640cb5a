-- Number of rows, tasks and ties (advantage 0) in some splits, and the highest advantage.
SELECT
    count(*) AS rows,
    count(DISTINCT task_hash) AS tasks,
    count_if(advantage = 0) AS ties,
    max(advantage) AS best
FROM transition_rows
WHERE split IN $splits
