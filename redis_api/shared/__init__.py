"""What a connection keeps, and what all connections of a node share."""
