"""Where documents live: one protocol, and its implementations."""
