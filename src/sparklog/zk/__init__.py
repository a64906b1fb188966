"""ZooKeeper: Kafka 3.x's tree of znodes, and the one client that reads and writes it."""
