"""How holds of every kind begin, change and end, and how waiters are let through.

Every grant is made here or, for one free exclusive lock that nobody waits for, by the fast path in
`plain_locks`. That is most grants, and they must be equal: it writes the same records, token and event that
`begin` would, and leaves to `locks` whatever is not plain. The property test runs every history both ways and
compares states and results (tests/property/test_plain_locks.py).

Theory of operation
-------------------

A *hold* is one granted right: to a lock, to several locks together, to permits of a semaphore, or to lead an
election. It has one secret id, one fencing token and one lease, which is its own or its session's. A lock or
an election claims records of names (see `claims`), a semaphore counts permits; beyond that the kinds do not
differ here. Whoever cannot have a hold at once may wait for it: as a *ticket*.

    request --------- begin ---------> hold  <---+ renewed, convert, add, give_up, proclaim
       |                               ^ | |     |
       |                               | | +-----+
       +--- wait ---> ticket --- serve + |
                        |                +--- end ---> gone; after an expiry or a force, its lock-delay stays
                        +--- end_wait ---> refused

Each move is a function: begin in `grants`; convert, add and give_up in `changes`; renewed and proclaim in
`reentry`; wait, pass_by and serve in `waiting`; end and end_wait in `ends`. Whether there is room for a hold
is told in `admission`.

What each move relies on and what it keeps true. The sentences in backquotes are functions of `invariants`.

begin       Relies on the caller: nothing is in the way of the claims (`is_free`, `can_go`, or there are the
            permits), so `holders_are_compatible`. Draws the next token: `tokens_are_unique_and_given_out`.
            The lease begins now, also after a wait, and so does the time for which it may be held.
pass_by     Grants a request that comes before everybody who waits for the same (`can_go`). Refuses a grant
            that would close a deadlock: those that it passes wait for what it gets.
wait        Relies on the caller: something is in the way. Refuses a wait that would close a deadlock, and one
            for which there is no room. Enters the ticket in the queue of each of its claims, behind what
            comes before it: `queues_are_right`.
end         Takes a hold out of every table, and the ticket of its change before it: `tables_agree`,
            `claims_are_counted`. After an expiry or a force, the lock-delay begins in the same move, so that
            nobody is granted what the late holder may still be writing to.
hand over   Ends a hold and begins that of its receiver in one move (see `hand_overs`), ahead of all that
            wait. Refused if another hold is in the way, or if it would close a deadlock.
end_wait    Takes a ticket out of every table, and settles its request with a refusal.
convert     Gives a hold another mode that nothing is in the way of. The hold keeps its id, and gets a new
            token if the new mode excludes more, and somebody may write (`DRAWING`). Pleas for waits that
            it is not in the way of any more end: `pleas_are_of_holds`.
add         Gives a hold more locks that nothing is in the way of, and the next token: for each of them it
            must be higher than that of everybody who had it before.
give_up     Ends a part of a hold of several locks, with the pleas for it. The rest keeps its token, its lease
            and its pleas.
serve       Lets through every ticket that nothing is in the way of any more, conversions first, then in order
            of arrival, until none is left: `nobody_waits_in_vain`.

Why grants happen where they do: tokens are drawn in `begin`, `convert` and `add`, by the fast path where it
stands for `begin`, and nowhere else. All of these are called from three kinds of places: a command that has
just found its claims free, `serve`, and a hand-over, for which only the hold that it ends is in the way. To
see that a lock has one holder, read those calls. A newcomer waits also for what only an earlier ticket
claims, so it cannot overtake; `precedence` says which one is earlier.

A move that ends something does not serve. It returns what became free, and the command serves once, after
the last of what it ends is gone: while a session is half closed, the tables do not agree and nothing may be
granted. But a command does not return before it has served. So no other command, no revision and no time lies
between an end and the grants that follow from it, and every node that applies the entry makes the same ones.
"""
