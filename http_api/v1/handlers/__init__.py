"""One function for each call: read the request, let the gateway do it, write the answer."""
