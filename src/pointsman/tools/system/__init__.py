"""This machine: processes, files, memory, locations."""
