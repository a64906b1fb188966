"""The APIs of consumer groups: their coordinators, members, offsets and lag."""
