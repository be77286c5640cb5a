SELECT coalesce(content, 'unknown') AS content, dialect, count(*) AS calls
FROM llm_calls
GROUP BY ALL
ORDER BY calls DESC
LIMIT 30
