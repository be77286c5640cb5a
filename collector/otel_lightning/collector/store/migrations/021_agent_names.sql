-- derive: again
-- The readers now give a call of LangGraph its node as `agent_name`, and keep the order of a
-- message's keys. No table changes; what was derived before is derived once more.
SELECT 1;
