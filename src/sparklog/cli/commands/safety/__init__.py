"""Commands about copies of topics, and clusters of Kafka's."""
