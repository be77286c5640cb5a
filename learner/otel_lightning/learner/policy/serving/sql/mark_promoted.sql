UPDATE runs SET outcome = 'promoted', artifact = $artifact WHERE run_id = $run_id
