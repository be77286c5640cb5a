SELECT run_id, gate::VARCHAR AS gate, outcome FROM runs WHERE command IN ('policy', 'gate')
