-- Whether there are model calls, and no reward.
SELECT EXISTS (FROM llm_calls) AND NOT EXISTS (FROM rewards) AS is_so
