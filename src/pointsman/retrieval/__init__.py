"""Finding documents, and putting together what several ways of looking have found."""
