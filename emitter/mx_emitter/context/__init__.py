"""What an event carries beside its own fields: load, trace, rank, and the client's release."""
