"""Rules by op name: which kind each framework's op is, and what it costs."""
