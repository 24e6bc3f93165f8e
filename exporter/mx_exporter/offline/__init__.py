"""Logs after the fact: what arguments name, read, unwrapped, and folded in several processes."""
