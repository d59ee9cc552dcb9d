"""Studies of the kernel in numbers and pictures: `python -m benchmarks.studies`."""
