"""Who gets which partitions: pure functions from a Spec to everybody's share."""
