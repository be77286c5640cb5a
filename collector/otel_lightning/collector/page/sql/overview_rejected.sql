SELECT signal, reason, count(*) AS records, epoch_ns(max(received_at)) AS last_ns
FROM rejected
GROUP BY signal, reason
ORDER BY last_ns DESC
LIMIT 3
