WITH keyed AS (
    SELECT
        *,
        $sign * CASE $sort
            WHEN 'reward' THEN final_reward
            WHEN 'calls' THEN llm_calls
            WHEN 'tokens' THEN output_tokens
            WHEN 'errors' THEN failed_calls + failed_tools
            ELSE epoch_ns(end_time) - epoch_ns(start_time)
        END::DOUBLE AS sort_key
    FROM rollout_rows
)
