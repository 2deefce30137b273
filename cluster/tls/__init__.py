"""TLS as nodes speak it: with clients, and with each other."""
