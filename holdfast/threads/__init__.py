"""The client for threads, over that for tasks."""
