"""Is a candidate better than what is live? Off-policy estimates and the gate."""
