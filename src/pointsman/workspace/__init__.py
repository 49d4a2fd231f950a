"""Workspaces: datasets in one place, opened, searched, indexed, calibrated, copied, backed up and replayed."""
