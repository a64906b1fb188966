"""What three replicas cost and are worth: three brokers of ours beside three of Apache Kafka 3.9.1, in parts.

Each part does the same on one cluster and then on the other (which is first alternates), as often as its rounds say.
Both clusters stay up all the while; only one is loaded at a time. Both have the same session timeout. A topic has three
partitions, each on all three brokers, and ``min.insync.replicas=2``. The client is librdkafka, in this process, on both
sides.
"""
