-- The last step of each agent before a window of steps: their messages are not new in the window.
SELECT max(step) AS step
FROM llm_calls
WHERE rollout_id = $rollout AND $during AND step < $first
GROUP BY agent_name
ORDER BY step
