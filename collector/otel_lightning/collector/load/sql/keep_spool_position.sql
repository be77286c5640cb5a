DELETE FROM spool_position;
INSERT INTO spool_position VALUES ($segment, $byte_offset)
