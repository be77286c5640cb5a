-- Number of rows of a table that have the key of another row.
SELECT coalesce(sum(copies - 1), 0)::BIGINT AS n
FROM (SELECT count(*) AS copies FROM $table GROUP BY $key HAVING count(*) > 1)
