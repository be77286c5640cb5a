-- Spans that were not stored because other spans have their ids.
SELECT
    count(*) AS n,
    (SELECT count(*) FROM spans) AS total,
    min(split_part(reason, ' has the ids', 1)) AS example,
    NULL::VARCHAR AS kind
FROM rejected
WHERE starts_with(reason, 'repeated ids:')
HAVING count(*) > 0
