-- Runs of arms with an attempt that was lost.
SELECT DISTINCT run_id FROM attempts WHERE status = 'lost' AND arm IS NOT NULL AND run_id IS NOT NULL
