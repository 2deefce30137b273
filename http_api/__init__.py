"""The HTTP face of a node: it translates, and decides nothing about locks."""
