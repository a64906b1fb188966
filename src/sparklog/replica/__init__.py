"""The partitions that this broker holds: their leaders, how far they are committed, the requests that wait for them."""
