"""The keyword index of a dataset in a folder."""
