"""Pointsman for LangChain, LlamaIndex and Haystack, and for agents by the Model Context Protocol."""
