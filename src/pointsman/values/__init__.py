"""The values that flow: queries, documents, hits, filters, views, settings, traces. Nothing here searches."""
