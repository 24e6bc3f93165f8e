"""Pushing a page to a Pushgateway."""
