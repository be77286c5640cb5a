SELECT key, version, arms, parameters
FROM policies
WHERE run_id = $run_id
ORDER BY key
