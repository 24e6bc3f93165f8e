"""``mx-metrics top``: the loads of a directory, or of an exporter, in a terminal."""
