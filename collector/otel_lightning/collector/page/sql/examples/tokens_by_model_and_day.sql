SELECT response_model, start_time::DATE AS day, count(*) AS calls,
    sum(input_tokens) AS input, sum(output_tokens) AS output
FROM llm_calls GROUP BY ALL ORDER BY day DESC, calls DESC
