"""Who asks: keys, tokens, hosts, rates."""
