SELECT
    key, version, served_version, action, share, arms::VARCHAR AS arms, flags,
    before::VARCHAR AS before, after::VARCHAR AS after, "time"
FROM promotions
ORDER BY "time"
