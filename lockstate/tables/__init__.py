"""What the state is made of: records, the tables that hold them, and what counts them."""
