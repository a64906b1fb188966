"""Writing records: batches, sequence numbers, transactions."""
