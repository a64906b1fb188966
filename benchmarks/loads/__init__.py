"""The loads on a broker, each a process of its own: ``python -m benchmarks.loads NAME JSON`` prints figures as JSON."""
