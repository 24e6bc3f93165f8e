"""The live directory: finding, following, owning and compacting segments, and shipping them."""
