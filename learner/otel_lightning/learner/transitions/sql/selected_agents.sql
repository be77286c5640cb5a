-- The number of calls of the selected agents, and the names of all agents.
SELECT
    count_if($selected) AS calls,
    list(DISTINCT agent_name ORDER BY agent_name) FILTER (agent_name IS NOT NULL) AS agents
FROM llm_calls
WHERE step IS NOT NULL
