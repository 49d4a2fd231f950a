"""Running a search: sources, branches in parallel, candidates, and the notes that are taken."""
