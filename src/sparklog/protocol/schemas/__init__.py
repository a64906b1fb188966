"""Schemas of the messages that the schema library leaves out, in Kafka's own description language.

Those between brokers are described in the versions that brokers of Kafka speak in ZooKeeper mode from
``inter.broker.protocol.version`` 2.8 on, those of the consumer group protocol and of delegation
tokens in all; others because the library begins later than Kafka 3.9 does.
LeaseSegments, ProbeBroker, GetReplicaLogInfo, DescribeCompaction, CompactPartitions, BeginCompaction, CommitCompaction,
EraseRecords, AdoptSegments and DescribeRetention are sparklog's own, under keys that Kafka does not come near.
"""
