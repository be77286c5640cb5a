-- Traces chosen at random.
SELECT trace_id FROM (SELECT DISTINCT trace_id FROM spans) ORDER BY random() LIMIT $sample
