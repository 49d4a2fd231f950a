"""Small helpers without knowledge of retrieval, and the errors."""
