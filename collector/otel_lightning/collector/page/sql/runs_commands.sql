SELECT command
FROM runs
WHERE command IS NOT NULL
GROUP BY command
ORDER BY min(started)
