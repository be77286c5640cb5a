"""`lightning-learn transitions`: rollouts and rewards become transitions with credit."""
