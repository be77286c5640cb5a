-- The attempts of a run that the store has.
SELECT rollout_id, status, reason FROM attempts WHERE run_id = $run_id
