"""Produce and Fetch by hand: the two messages that carry records and are worth microseconds."""
