"""Selectors: given described choices and a query, which one, why, and how sure. They never run the choice."""
