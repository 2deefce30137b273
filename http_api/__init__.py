"""The HTTP face of a node: JSON to commands, results to JSON. No decision about locks is made here."""
