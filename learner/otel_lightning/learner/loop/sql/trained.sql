-- Whether a training run has ended well.
SELECT run_id FROM runs WHERE run_id = $run_id AND outcome <> 'failed'
