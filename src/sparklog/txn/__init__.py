"""The transaction coordinator: which transactions are open, how they end, and that every partition hears of it."""
