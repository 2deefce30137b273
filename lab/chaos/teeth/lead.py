"""A fault that is none: a certain node leads."""

import time
from typing import ClassVar, Final

from lab.chaos.faults.fault import Fault
from lab.chaos.faults.members import REASON
from lab.chaos.targets.target import Ability, LabFailure, Target

LEAD_S: Final = 20.0


class Lead(Fault[Target]):
    """Leadership is handed to the node of the option `node`, as often as it takes."""

    name = "lead"
    text = "a certain node is made the leader"
    needs: ClassVar[frozenset[Ability]] = frozenset({"processes"})
    weight = 0.0

    def begin(self) -> list[str]:
        """Ask for it until it is so."""
        node_id = self.some_node()
        deadline_s = time.monotonic() + LEAD_S
        while self.target.leader() != node_id:
            if time.monotonic() > deadline_s:
                raise LabFailure(f"{node_id} could not be made the leader within {LEAD_S:.0f} s")
            self.target.ask(
                node_id,
                "/v1/cluster/transfer-leadership",
                method="POST",
                body={"to": node_id, "reason": REASON},
            )
        return [node_id]

    def end(self) -> None:
        """Do nothing: somebody leads."""
