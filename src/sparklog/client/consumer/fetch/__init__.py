"""Records on their way from brokers to the reader."""
