SELECT unnest(map_keys(attributes)) AS key, count(*) AS spans
FROM (FROM spans ORDER BY start_time DESC LIMIT 10000) GROUP BY key ORDER BY spans DESC
