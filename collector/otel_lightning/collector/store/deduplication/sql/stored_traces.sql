-- A hash of each trace id of the store.
SELECT hash(trace_id) AS key FROM (
    SELECT trace_id FROM spans UNION SELECT trace_id FROM logs WHERE trace_id IS NOT NULL
)
