"""What stands in the way of taking over a running cluster of Kafka's."""
