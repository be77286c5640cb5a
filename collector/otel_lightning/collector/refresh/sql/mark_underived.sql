-- Without a time, as `rebuild` marks them: their lag is not measured.
INSERT INTO stale BY NAME
SELECT DISTINCT 'trace' AS kind, trace_id AS id
FROM spans
WHERE received_at >= (SELECT max(received_at) FROM spans) - to_seconds($seconds)
    AND trace_id NOT IN (SELECT id FROM stale WHERE kind = 'trace')
    AND trace_id NOT IN ($derived)
RETURNING id
