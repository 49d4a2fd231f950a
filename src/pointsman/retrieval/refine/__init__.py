"""Reshaping a ranking: rerank, refuse, diversify, compress."""
