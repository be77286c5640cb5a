"""Files written so that a crash leaves no part of one, and overwritten so that nothing stays."""
