SELECT name, count(*) AS calls, count(error_type) AS failed
FROM tool_calls GROUP BY name ORDER BY failed DESC, calls DESC
