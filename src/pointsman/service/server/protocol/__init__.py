"""What a request must look like, and how it is answered: head, body, JSON, limits, problems."""
