"""Retrievers: what finds documents, alone, by another library, several as one, or as a selector chooses."""
