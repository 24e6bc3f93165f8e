"""The pure core: lines to events, events to state. No file, clock, thread or metrics library."""
