-- A training that a kill cut off begins again, with the same id: remove its curve and its error.
DELETE FROM run_steps WHERE run_id = $run_id;
DELETE FROM runs WHERE run_id = $run_id
