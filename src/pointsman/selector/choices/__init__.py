"""The described choices as features: words, vectors, examples."""
