-- How many rows some splits have, and whether their advantages tell answers apart.
SELECT
    count(*) AS rows,
    count(DISTINCT task_hash) AS tasks,
    count_if(advantage = 0) AS ties,
    max(advantage) AS best
FROM transition_rows
WHERE split IN $splits
