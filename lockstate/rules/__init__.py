"""What commands do to the state: each rule in one file, named after what it is about."""
