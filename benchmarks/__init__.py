"""Measures what training costs, beside everything that could be used instead: ``python -m benchmarks --help``."""
