"""Version 1 of the HTTP API: its calls, how they are described, and watching."""
