-- Positions of the rows of a batch whose ids a table lacks.
SELECT position FROM {rows} b
WHERE NOT EXISTS (FROM $table t WHERE $same AND $bounds) ORDER BY position
