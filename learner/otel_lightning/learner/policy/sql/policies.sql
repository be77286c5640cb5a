SELECT key, version, arms::VARCHAR AS arms, parameters::VARCHAR AS parameters, run_id, created, status
FROM policies
