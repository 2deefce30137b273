"""The words of the log: commands, results, ids, names, modes, limits, and how they are encoded."""
