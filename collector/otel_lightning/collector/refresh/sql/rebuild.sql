$deletes
INSERT INTO stale BY NAME SELECT DISTINCT 'trace' AS kind, trace_id AS id FROM spans;
INSERT INTO stale BY NAME
SELECT DISTINCT if(trace_id IS NULL, 'log', 'trace') AS kind, coalesce(trace_id, log_id) AS id
FROM logs
