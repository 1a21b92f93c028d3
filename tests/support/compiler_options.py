"""Options of XLA for programs that run once."""

UNOPTIMIZED = {"xla_backend_optimization_level": 0}  # compiles in a third of the time
