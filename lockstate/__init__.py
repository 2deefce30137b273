"""The replicated state machine: pure, deterministic, no clock, no I/O, no randomness."""
