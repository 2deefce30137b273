"""The version of both distributions: the builds of holdfast-locks and of holdfast-node read it here."""

__version__ = "1.0.0.dev0"
