-- What is exported, without its text, in the order in which calls are stored: so text is read once,
-- a piece at a time, and never carried through a join of everything with everything.
CREATE OR REPLACE TEMP TABLE exported AS
SELECT coalesce(c.rowid, 0) AS place, t.*
FROM transition_rows t
LEFT JOIN llm_calls c USING (trace_id, span_id)
WHERE t.split IN $splits AND ($all OR t.advantage > $threshold)
ORDER BY place
