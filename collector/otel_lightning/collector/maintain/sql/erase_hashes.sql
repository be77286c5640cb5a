-- Delete the hashes of inputs that no remaining call has: a hash would still identify the text.
DELETE FROM task_messages WHERE state_hash NOT IN (SELECT state_hash FROM llm_calls WHERE state_hash IS NOT NULL);
