"""Simulated ranks, to see the product work before there is an engine: ``mx-metrics demo``."""
