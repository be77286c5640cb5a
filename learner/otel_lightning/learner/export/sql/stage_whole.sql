-- All exported rows in one piece: for a small store, or one in which an ingester may change row ids.
CREATE OR REPLACE TEMP VIEW exported AS
SELECT 0 AS place, *
FROM transition_rows
WHERE split IN $splits AND ($all OR advantage > $threshold) AND ($ties OR advantage <> 0)
