SELECT
    key, version, arms::VARCHAR AS arms, parameters::VARCHAR AS parameters, run_id, created, status,
    parent, data_fingerprint
FROM policies
ORDER BY created, version
