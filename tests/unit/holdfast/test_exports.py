"""What the package exports."""

import holdfast


def test_what_is_exported_exists() -> None:
    """`__all__` is sorted and true."""
    assert sorted(holdfast.__all__) == holdfast.__all__
    assert all(hasattr(holdfast, name) for name in holdfast.__all__)
