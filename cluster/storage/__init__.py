"""What a node keeps on its disk: the log, the snapshot, and whose directory it is. Knows no network."""
