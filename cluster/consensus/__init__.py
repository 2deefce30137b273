"""One node's part in Raft, made safe: the library, its guards, elections, members, snapshot transfer."""
