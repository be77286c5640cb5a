-- derive: again
-- The readers now separate parallel tool calls that JavaScript joined into one, allow for start times
-- of whole milliseconds, keep an agent without tool calls in its history in one rollout, and count
-- "An error occurred" as a failure. No table changes.
SELECT 1;
