"""What clients of Redis say and are told: bytes, arguments, errors, keys as names; no I/O, no node."""
