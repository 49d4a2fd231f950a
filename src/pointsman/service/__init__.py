"""The HTTP service: its server, its console, its client, and `open`, which takes a folder, a database or a service."""
