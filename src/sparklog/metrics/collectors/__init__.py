"""What reads the broker's own objects when a scrape asks: a module for each part of it."""
