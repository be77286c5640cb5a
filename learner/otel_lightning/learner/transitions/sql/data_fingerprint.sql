SELECT printf('%016x', coalesce(bit_xor(hash(fingerprint)), 0)) AS fingerprint FROM transition_rollouts
