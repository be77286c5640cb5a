-- The exported rows without their text, in the order in which calls are stored. Text is then read
-- once, one range of calls at a time, and never carried through a join of all rows.
CREATE OR REPLACE TEMP TABLE exported AS
SELECT coalesce(c.rowid, 0) AS place, t.*
FROM transition_rows t
LEFT JOIN llm_calls c USING (trace_id, span_id)
WHERE t.split IN $splits AND ($all OR t.advantage > $threshold) AND ($ties OR t.advantage <> 0)
ORDER BY place
