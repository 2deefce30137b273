"""What measures and attacks the product. It may import everything; nothing imports it but tests."""
