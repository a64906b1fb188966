"""The group coordinator: the members of a consumer group, the partitions of each, and how far the group has read."""
