"""What scrapes would have seen, had there been any: a log to samples of the time when it was."""
