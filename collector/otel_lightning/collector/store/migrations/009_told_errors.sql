-- derive: again
-- Whether a tool's result tells that it failed ("Error: …", MCP's isError). That is no error_type:
-- a rule counts it if it says so.
ALTER TABLE tool_calls ADD COLUMN told_error BOOLEAN;
