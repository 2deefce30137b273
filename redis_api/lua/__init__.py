"""Scripts of clients: known by what they mean, or run in a sandbox."""
