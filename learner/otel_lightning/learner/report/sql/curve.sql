SELECT name, step, value
FROM run_steps
WHERE run_id = $run_id AND value IS NOT NULL
ORDER BY name, step
