"""The endpoints, by topic."""
