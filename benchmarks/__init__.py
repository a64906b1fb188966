"""Benchmarks: ``python -m benchmarks [codec] [broker] [spark]`` measures and writes ``docs/performance.md``."""
