-- Traces that share a key with one of the given ones.
SELECT DISTINCT trace_id FROM trace_keys
WHERE key IN (SELECT key FROM trace_keys WHERE trace_id IN $traces)
