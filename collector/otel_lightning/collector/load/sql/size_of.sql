-- The bytes of the blocks of a table in the file.
SELECT count(DISTINCT block) * (
    SELECT block_size FROM pragma_database_size() WHERE database_name = current_database()
) AS size FROM (
    SELECT block_id AS block FROM pragma_storage_info($table) WHERE persistent
    UNION ALL
    SELECT unnest(additional_block_ids) FROM pragma_storage_info($table) WHERE persistent
) WHERE block >= 0
