SELECT min(position) AS position FROM {rows} GROUP BY $ids ORDER BY position
