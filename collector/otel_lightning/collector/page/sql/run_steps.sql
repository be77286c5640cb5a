-- At most 200 points a curve.
WITH numbered AS (
    SELECT name, step, value, count(*) OVER (PARTITION BY name) AS points
    FROM run_steps
    WHERE run_id = $run AND value IS NOT NULL
)
SELECT name, min(step) AS step, avg(value) AS value, any_value(points) AS points
FROM numbered
GROUP BY name, step * 200 // (SELECT greatest(max(step) + 1, 200) FROM numbered)
ORDER BY name, step
