"""Ranges of partitions as Arrow batches: which there are, where they begin and end, and how they are read."""
