-- Record the checksum of each migration that the store ran and that has none yet.
UPDATE schema_migrations SET checksum = known.checksum
FROM (VALUES $known) AS known (version, checksum)
WHERE schema_migrations.version = known.version AND schema_migrations.checksum IS NULL
