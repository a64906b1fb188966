"""What the handlers of several APIs have in common."""
