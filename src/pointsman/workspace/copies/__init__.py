"""Copies of a workspace: to another place, or as a backup."""
