"""`lightning-learn transitions`: build transitions, with credit, from rollouts and rewards."""
