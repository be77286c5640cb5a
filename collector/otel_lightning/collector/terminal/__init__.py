"""What the commands of both programs share for reading options and for writing to a terminal."""
