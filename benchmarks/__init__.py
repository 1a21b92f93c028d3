"""Benchmarks of the CPU kernels, the report and the estimates; each is a command of its own."""
