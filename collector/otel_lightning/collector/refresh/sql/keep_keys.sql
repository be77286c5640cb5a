-- Replace the keys of the traces in `read_again`. Only stale traces may have new keys; the keys of the
-- others are in the table already.
DELETE FROM trace_keys WHERE $added AND trace_id IN (FROM read_again);
INSERT INTO trace_keys
SELECT DISTINCT trace_id, own, make_timestamp_ns($now_ns) FROM sought
WHERE trace_id IN (FROM read_again)
ORDER BY ALL
