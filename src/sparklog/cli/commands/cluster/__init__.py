"""Commands that show and change what a cluster has: topics, partitions, logs, groups, transactions."""
