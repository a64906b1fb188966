"""What brokers, clients and jobs write to their logs, and what a person does about it: ``docs/log-lines.md``."""
