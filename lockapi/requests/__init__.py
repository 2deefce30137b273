"""What clients ask for: one struct per request, which checks its fields and makes the command and its ids."""
