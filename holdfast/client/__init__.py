"""The client for tasks: locks, holds, sessions, cells, listings; and what it shares with that for threads."""
