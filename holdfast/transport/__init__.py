"""How an operation reaches a node: connections, who calls, TLS, attempts, renewals."""
