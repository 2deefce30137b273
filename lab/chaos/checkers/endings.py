"""The end of a run: what was acknowledged is there, what was released is not, and all nodes are equal."""

from lab.chaos.checkers.holds import Hold, holds
from lab.chaos.checkers.violation import Violation
from lab.chaos.history import FinalHolds, History


def final_holds(history: History) -> list[Violation]:
    """The final listings have each hold that nobody gave up and that lasts, and none that was released."""
    known = holds(history)
    found = []
    for listing in history.final_holds:
        tokens = {(holder.name, holder.token) for holder in listing.holders}
        for hold in known:
            if hold.kind != listing.kind or not hold.name.startswith(listing.prefix):
                continue
            is_listed = (hold.name, hold.token) in tokens
            if not is_listed and min(hold.let_go_ns, hold.trusted_until_ns) > listing.return_ns:
                found.append(_at_end(hold, listing, "was granted and never given up, but is gone"))
            if is_listed and hold.released_ns < listing.call_ns:
                found.append(_at_end(hold, listing, "was given up, which was acknowledged, but is there"))
    return found


def equal_nodes(history: History) -> list[Violation]:
    """All nodes have one revision and one digest in the end. The last line of each node counts.

    A node that tells no digest, of an older version, is not compared by it.
    """
    last = {state.node: state for state in history.node_states}
    digests = {state.digest for state in last.values() if state.digest}
    if len({state.revision for state in last.values()}) <= 1 and len(digests) <= 1:
        return []
    said = ", ".join(f"{state.node} {state.revision} {state.digest[:12]}" for state in last.values())
    at_ns = max(state.at_ns for state in last.values())
    return [Violation(checker="equal-nodes", text=f"the nodes differ in the end: {said}", at_ns=at_ns)]


def witnessed(history: History) -> list[Violation]:
    """No fault has seen itself what no cluster may do."""
    return [Violation(checker="witnessed", text=line.text, at_ns=line.at_ns) for line in history.witnessed]


def _at_end(hold: Hold, listing: FinalHolds, what: str) -> Violation:
    return Violation(
        checker="final-holds",
        text=f"{hold.name} with token {hold.token} {what} in the end",
        operations=(hold.grant.id,),
        at_ns=listing.return_ns,
    )
