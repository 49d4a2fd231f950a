"""Pointsman for other programs: agents by the Model Context Protocol."""
