"""Selectors: given described choices and a query, which one, why, and how sure. They choose; they never run the choice."""
