-- Rows of the traces that `erase_rows` marked, and that are still not derived again.
DELETE FROM $table
WHERE trace_id IN (FROM tied_traces) AND trace_id IN (SELECT id FROM stale WHERE kind = 'trace');
