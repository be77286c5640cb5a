-- One row if a trace of `chosen` is missing in the sorted copy.
SELECT 1 FROM chosen WHERE trace_id NOT IN (SELECT trace_id FROM gathered) LIMIT 1
