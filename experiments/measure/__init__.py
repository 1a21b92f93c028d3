"""Measurements: timing and statistics, FLOPs, memory, energy, utilisation and their sources."""
