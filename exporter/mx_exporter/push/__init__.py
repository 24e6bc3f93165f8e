"""Pushing metrics to where they are kept."""
