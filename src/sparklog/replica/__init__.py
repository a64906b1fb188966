"""The partitions that this broker holds: who leads, how far they are committed, who waits for what."""
