"""Score stored rollouts afterwards, by rules and by judges."""
