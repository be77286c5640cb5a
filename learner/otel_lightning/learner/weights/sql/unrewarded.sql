-- Rollouts that could be used but for their reward, and all that could be used.
SELECT
    count_if(excluded = 'without a reward')::BIGINT AS unrewarded,
    count_if(excluded IS NULL OR excluded = 'without a reward')::BIGINT AS rollouts
FROM transition_rollouts
