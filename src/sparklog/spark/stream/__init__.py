"""Streaming queries: where they are, what the next micro-batch reads, and how far they are behind."""
