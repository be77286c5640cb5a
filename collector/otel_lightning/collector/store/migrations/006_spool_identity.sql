-- Which spool the row of spool_position is about: the content of the file `id` in its folder.
CREATE TABLE spool_identity (spool_id VARCHAR NOT NULL);
