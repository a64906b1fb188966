"""What talks to brokers, ours or Kafka's: metadata, fetching, producing, administration. Blocking; whole batches."""
