"""Functions that run under a lock or while they lead, with the clients that they use."""
