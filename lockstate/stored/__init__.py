"""The state as bytes, for snapshots, and back."""
