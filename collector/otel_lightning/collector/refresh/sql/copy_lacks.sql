-- One row if a trace of `frontier` is missing in the sorted copy.
SELECT 1 FROM frontier WHERE trace_id NOT IN (SELECT trace_id FROM gathered) LIMIT 1
