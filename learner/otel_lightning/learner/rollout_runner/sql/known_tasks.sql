-- The tasks that the store has, with a hash of their text.
SELECT task_id, fingerprint FROM tasks
