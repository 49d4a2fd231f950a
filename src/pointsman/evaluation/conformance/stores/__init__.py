"""The suite for stores: the promises of reading and of writing."""
