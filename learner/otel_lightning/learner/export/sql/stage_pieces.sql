-- The exported rows without text, sorted by the row id of their call. The text is joined later, one
-- range of row ids at a time, so that no join or sort holds the text of all rows in memory.
CREATE OR REPLACE TEMP TABLE exported AS
SELECT coalesce(c.rowid, 0) AS place, t.*
FROM transition_rows t
LEFT JOIN llm_calls c USING (trace_id, span_id)
WHERE t.split IN $splits AND ($all OR t.advantage > $threshold) AND ($ties OR t.advantage <> 0)
ORDER BY place
