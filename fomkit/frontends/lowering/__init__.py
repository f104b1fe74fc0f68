"""Which kind each framework's op is, and what it costs: rules by the op's name."""
