-- When the first of what made a trace or log record stale was received: how far deriving lags.
ALTER TABLE stale ADD COLUMN received_at TIMESTAMP_NS;
