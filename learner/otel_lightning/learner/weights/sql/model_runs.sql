-- Trainings that ended with a model, and comparisons of models, oldest first.
SELECT
    run_id,
    command,
    config::VARCHAR AS config,
    gate::VARCHAR AS gate,
    outcome,
    artifact,
    ended
FROM runs
WHERE command IN ('weights', 'evaluate') AND outcome IN ('passed', 'refused')
ORDER BY ended
