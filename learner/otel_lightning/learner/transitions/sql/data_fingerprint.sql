-- One fingerprint of everything that the transitions were made from.
SELECT printf('%016x', hash(coalesce(sum(hash(fingerprint)), 0))) AS fingerprint FROM transition_rollouts
