"""Measurements on a GPU. `python -m benchmarks.hopper --help` starts the comparison on an H200."""
