-- A part of a table, to be inserted into another store in the same order.
SELECT * EXCLUDE (resource) FROM $table
WHERE rowid >= $start AND rowid < $end AND $condition
ORDER BY rowid
