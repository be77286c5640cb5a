"""Options and terminal output, which the commands of both programs share."""
