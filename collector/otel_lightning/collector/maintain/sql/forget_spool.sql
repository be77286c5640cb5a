-- The spool is empty now: the next one may begin with any segment, and has another id.
DELETE FROM spool_position;
DELETE FROM spool_identity
