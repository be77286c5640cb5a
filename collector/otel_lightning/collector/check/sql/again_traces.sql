-- All traces.
SELECT DISTINCT trace_id FROM spans
