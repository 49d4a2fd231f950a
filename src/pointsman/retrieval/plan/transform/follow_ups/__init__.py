"""Completes, by rules, questions that leave unsaid what the conversation before them has said."""
