SELECT key, version, status, arms
FROM policies
WHERE run_id = $run
ORDER BY key
