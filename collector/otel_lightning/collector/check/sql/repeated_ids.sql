-- Number of spans that were not stored because other spans have their ids.
SELECT count(*) AS n FROM rejected WHERE starts_with(reason, 'repeated ids:')
