"""A consumer as a member of a group: its assignment, and the offsets it commits."""
