"""Converters: one module for each family of formats."""
