-- Names of rubrics under which rewards with a number came from elsewhere too.
SELECT name, count(*) AS n
FROM rewards
WHERE name IN $names AND value IS NOT NULL AND NOT starts_with(coalesce(source, ''), $judges)
GROUP BY name
ORDER BY name
