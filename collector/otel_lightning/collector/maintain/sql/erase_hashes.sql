-- Hashes of what a model saw, where no call that is left saw it.
DELETE FROM task_messages WHERE state_hash NOT IN (SELECT state_hash FROM llm_calls WHERE state_hash IS NOT NULL);
