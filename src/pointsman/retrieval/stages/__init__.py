"""The stages of a search: functions from a value to a value, which `pointsman.retrieval.search` calls in order."""
