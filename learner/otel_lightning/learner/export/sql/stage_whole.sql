-- The exported rows at once: they are few, or the store changes meanwhile.
CREATE OR REPLACE TEMP VIEW exported AS
SELECT 0 AS place, *
FROM transition_rows
WHERE split IN $splits AND ($all OR advantage > $threshold) AND ($ties OR advantage <> 0)
