"""The Redis face: locks for the clients of Redis, over the same gateway as HTTP (docs/faces.md)."""
