SELECT used_blocks * block_size AS used
FROM pragma_database_size()
WHERE database_name = current_database()
