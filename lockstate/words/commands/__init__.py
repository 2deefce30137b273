"""What can be asked of the state machine: one frozen struct for each command.

A command is encoded as a MessagePack array whose first element is its tag. A tag is never reused; a new field
goes to the end, with a default. Ids and secrets come in commands: the state machine invents nothing.
"""
