SELECT quantile_cont(epoch_ns(end_time) - epoch_ns(start_time), 0.95)::BIGINT AS late_ns
FROM llm_calls
WHERE start_time >= make_timestamp_ns($since_ns)
