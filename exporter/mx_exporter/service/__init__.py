"""The live exporter: when to read, what to show, and its life from start to stop."""
