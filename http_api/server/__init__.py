"""HTTP itself, whatever the calls mean: connections, requests, replies, routing, logs and counts."""
