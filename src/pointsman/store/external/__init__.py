"""Collections that exist already: searched in place, or beside an index of ours."""
