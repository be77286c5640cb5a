"""What is done to a whole store: copy it, back it up, erase from it."""
