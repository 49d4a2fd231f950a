"""Calls to other servers: addresses, JSON with limits."""
