"""Off-policy estimates, and the gate: is a candidate better than the live policy?"""
