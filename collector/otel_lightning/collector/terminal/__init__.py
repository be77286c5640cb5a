"""What the commands share for reading their options and for writing to a terminal."""
