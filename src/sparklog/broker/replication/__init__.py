"""A broker's part in replication that asks other brokers: copying what it follows, and having its ISRs written."""
