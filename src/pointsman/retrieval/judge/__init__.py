"""Judging hits: how likely they are relevant, and which version of a document is in force. Arithmetic alone."""
