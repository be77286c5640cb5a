FROM rollouts ORDER BY start_time DESC LIMIT 20
