"""What ``python -m mx_emitter`` runs: doctor and reset."""
