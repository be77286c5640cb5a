-- Values for the filter: of each field those with most rollouts.
WITH choices AS (
    SELECT 'service' AS field, service_name AS choice, count(*) AS rollouts
    FROM rollout_rows
    WHERE service_name IS NOT NULL
    GROUP BY choice
    UNION ALL
    SELECT 'agent', agent_name AS choice, count(*)
    FROM rollout_rows
    WHERE agent_name IS NOT NULL
    GROUP BY choice
    UNION ALL
    SELECT 'arm', choice, count(*)
    FROM (SELECT unnest(arms) AS choice FROM rollout_rows)
    GROUP BY choice
)
FROM choices
QUALIFY row_number() OVER (PARTITION BY field ORDER BY rollouts DESC, choice) <= 100
ORDER BY rollouts DESC, choice
