"""What talks to brokers, ours or Kafka's: metadata, fetching, producing, administration. Blocking; moves whole batches."""
