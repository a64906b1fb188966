"""Delta tables that an offload writes: as records are, decoded, or the last record of each key."""
