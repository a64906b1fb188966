"""Groups of the classic protocol: members share out the partitions among themselves, the coordinator keeps order."""
