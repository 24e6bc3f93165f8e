"""Questions about logs, answered offline."""
