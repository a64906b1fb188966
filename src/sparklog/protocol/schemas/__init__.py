"""Schemas of the messages that the schema library leaves out, in Kafka's own description language.

Those between brokers are described in the one version that sparklog's brokers speak among themselves (a Kafka 3.9
broker in ZooKeeper mode understands it too), those of the consumer group protocol in all.
LeaseSegments and ProbeBroker are sparklog's own, under keys that Kafka does not come near.
"""
