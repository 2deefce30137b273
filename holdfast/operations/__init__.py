"""What is asked of a cluster and how its answer is read: one value for each operation. No I/O."""
