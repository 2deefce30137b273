"""The table of commands, and those that do more than change keys."""
