SELECT arm, least(floor(propensity * 10), 9)::INTEGER AS bin, count(*) AS choices
FROM arms
WHERE key = $key AND propensity IS NOT NULL
GROUP BY ALL
ORDER BY ALL
