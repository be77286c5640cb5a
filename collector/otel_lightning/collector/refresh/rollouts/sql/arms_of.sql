SELECT rollout_id, list(DISTINCT key || '=' || arm ORDER BY key || '=' || arm) AS arms
FROM arms
WHERE rollout_id IN (FROM {rows})
GROUP BY rollout_id
