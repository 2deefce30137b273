"""What every face of a node shares, without a transport: requests, answers, problems, the way to the node."""
