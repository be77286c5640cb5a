SELECT task_id, count(*) AS rollouts, min(final_reward) AS least,
    max(final_reward) AS most
FROM rollouts GROUP BY task_id HAVING least < most ORDER BY rollouts DESC LIMIT 50
