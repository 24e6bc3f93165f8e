"""Tables of families as TOML: those of an engine's own events, and the built-in one."""
