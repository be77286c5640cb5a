-- One row if the store has the table `rollout_rows`, which older schemas lack.
SELECT 1 FROM information_schema.tables WHERE table_name = 'rollout_rows' LIMIT 1
