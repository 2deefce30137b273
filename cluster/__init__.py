"""One node of the replicated lock service: Raft, journal, peer links, batching. Knows no HTTP."""
