DELETE FROM spool_identity;
INSERT INTO spool_identity VALUES ($spool_id)
