SELECT service_name, count(*) AS calls
FROM llm_calls
WHERE step = 0 AND service_name IS NOT NULL
GROUP BY service_name
ORDER BY calls DESC
LIMIT 30
