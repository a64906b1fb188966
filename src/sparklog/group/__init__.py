"""The group coordinator: who belongs to a consumer group, who reads what, and how far each group has read."""
