SELECT round, stage, outcome, details::VARCHAR AS details, epoch(ended) - epoch(started) AS seconds
FROM rounds
WHERE loop = $loop
ORDER BY ended, stage
