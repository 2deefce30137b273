"""What anybody may see of the state, computed when it is asked for. Changes nothing."""
