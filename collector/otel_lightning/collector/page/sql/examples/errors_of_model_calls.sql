SELECT error_type, left(error_message, 80) AS message, count(*) AS calls
FROM llm_calls WHERE error_type IS NOT NULL GROUP BY ALL ORDER BY calls DESC
