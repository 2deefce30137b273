"""What others may see of a node: events, metrics, contention, the audit log, status."""
