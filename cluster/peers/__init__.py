"""The links between nodes: who may speak on them, and how a connection proves itself."""
