"""Options of XLA for programs that run once."""

# Compiles in a third of the time.
UNOPTIMIZED = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}
