"""Settings: Kafka's names, types, defaults and limits, as tables; parsed into frozen dataclasses."""
