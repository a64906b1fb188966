"""Benchmarks: ``python -m benchmarks [codec] [log] [broker] [spark]`` measures and writes ``docs/performance.md``."""
