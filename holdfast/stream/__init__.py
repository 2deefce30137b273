"""The stream of a busy client, and waits that share a connection."""
