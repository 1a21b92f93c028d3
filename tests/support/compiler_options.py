"""Options of XLA for programs that run once, which every jaxlib from the oldest to the newest has."""

# Compiles in a third of the time.
UNOPTIMIZED = {"xla_backend_optimization_level": 0}
