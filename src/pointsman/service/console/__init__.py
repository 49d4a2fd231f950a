"""The console: one page with its scripts and styles, as `pointsman.service.server` serves them."""
