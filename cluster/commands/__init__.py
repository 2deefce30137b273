"""Commands on their way: from submission to outcome, and the clocks that time them."""
