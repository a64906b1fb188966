"""A broker's part in transactions: who coordinates them, how they begin in a partition, and how they end there."""
