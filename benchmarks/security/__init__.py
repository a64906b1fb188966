"""What security costs: TLS, handshakes, lists and quotas, ours beside Kafka's."""
