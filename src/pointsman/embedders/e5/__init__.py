"""The default embedder: its weights, tokens and graph."""
