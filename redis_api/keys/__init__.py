"""What commands do to keys: on an overlay of one state, which becomes one transaction."""
