"""The APIs that tell of and change brokers, topics, settings and quotas."""
