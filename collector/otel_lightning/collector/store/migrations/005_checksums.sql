-- The SHA-256 of each file that made a store, so that one made by other files is noticed.
ALTER TABLE schema_migrations ADD COLUMN checksum VARCHAR;
