"""A broker's part in security: the lists and tokens that it follows, and what it asks of each request."""
