"""Records on their way from brokers to whoever reads."""
