"""The APIs of idempotent and transactional producers."""
