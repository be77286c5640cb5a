SELECT run_id, outcome, artifact FROM runs WHERE run_id = $run_id
