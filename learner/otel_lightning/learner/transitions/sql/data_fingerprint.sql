-- One fingerprint of all data that the transitions were built from.
SELECT printf('%016x', hash(coalesce(sum(hash(fingerprint)), 0))) AS fingerprint FROM transition_rollouts
