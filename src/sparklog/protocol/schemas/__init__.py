"""Schemas of the inter-broker messages that the schema library leaves out, in Kafka's own description language.

Each file describes the one version that sparklog's brokers speak among themselves (a Kafka 3.9 broker in
ZooKeeper mode understands it too).
"""
