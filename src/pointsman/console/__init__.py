"""The console: one page with its scripts and styles, as `pointsman.server` serves them."""
