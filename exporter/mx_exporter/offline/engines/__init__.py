"""Ways to spread a fold over processes."""
