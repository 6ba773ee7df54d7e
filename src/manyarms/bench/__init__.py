"""Benchmarks: the time and memory of every stage beside plain forms, other libraries and the machine's limits."""
