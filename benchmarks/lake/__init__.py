"""Log and lake: topics into tables and back, beside Spark's connector on Kafka and Delta's own ways.

A module a part. All parts share one Spark session and, where Kafka is a side, the two brokers of ``benchmarks.peers``.
"""
