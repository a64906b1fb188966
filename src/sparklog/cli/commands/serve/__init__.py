"""Commands that run a part of a cluster on this machine."""
