"""Tests of Holdfast: what they share is in conftest.py and next to them."""
