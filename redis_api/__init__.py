"""The Redis face: locks, strings and lists for clients of Redis, over the gateway that HTTP has (docs/faces.md)."""
