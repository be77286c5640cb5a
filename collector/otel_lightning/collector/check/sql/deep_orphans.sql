-- Number of derived rows of a table whose trace has neither a span nor a log record.
SELECT count(*) AS n
FROM $table
WHERE trace_id IS NOT NULL
    AND trace_id NOT IN (SELECT trace_id FROM spans)
    AND trace_id NOT IN (SELECT trace_id FROM logs WHERE trace_id IS NOT NULL)
