-- What is exported, at once: few rows, or a store that changes meanwhile.
CREATE OR REPLACE TEMP VIEW exported AS
SELECT 0 AS place, *
FROM transition_rows
WHERE split IN $splits AND ($all OR advantage > $threshold)
