"""Options of XLA for programs that run once, which all supported versions of jaxlib have."""

# Compiles in a third of the time.
UNOPTIMIZED = {"xla_backend_optimization_level": 0}
