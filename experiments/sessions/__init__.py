"""What one command measures: some configurations, or as much of the whole study as fits."""
