"""What a log says of the loads of a model: the timeline, as pure values and functions."""
