"""The Redis face: locks, strings and lists for clients of Redis, over the gateway of HTTP (docs/faces.md)."""
