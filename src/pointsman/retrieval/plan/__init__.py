"""Planning a search: which datasets, which strategy, which variants of the question; the result is a recipe."""
