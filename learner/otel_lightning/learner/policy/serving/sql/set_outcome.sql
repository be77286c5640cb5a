UPDATE runs SET outcome = $outcome, artifact = $artifact WHERE run_id = $run_id
