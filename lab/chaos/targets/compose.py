"""Nodes in containers, as deploy/compose.yaml has them."""

import os
from collections.abc import Mapping
from typing import ClassVar, Final

from lab.chaos.targets import compose_project
from lab.chaos.targets.compose_project import NEW_ID, NODE_IDS, STOP_S, ComposeProject, docker
from lab.chaos.targets.target import LabFailure, Target
from scripts.lib import guardian, ports

IMAGE: Final = "holdfast:local"
"""What deploy/build-image builds. It is what is tested: build it anew after changes."""
TAIL_LINES: Final = 20


class ComposeTarget(Target):
    """Three containers on one machine, and a fourth that may join them.

    The lab asks a node at its published port, which a container loses with its network.
    """

    name: ClassVar = "compose"

    def __init__(self, nodes: int = len(NODE_IDS), image: str | None = None) -> None:
        """Run `image`, or that of HOLDFAST_IMAGE, or what deploy/build-image has built."""
        super().__init__()
        self._count = nodes
        self._image = image or os.environ.get("HOLDFAST_IMAGE") or IMAGE
        self._project: ComposeProject | None = None
        self._node_ids = list(NODE_IDS)
        self.abilities = frozenset({"processes", "members", "containers"})

    @property
    def project(self) -> ComposeProject:
        """The containers, once they are there."""
        assert self._project is not None, "not open"
        return self._project

    def open(self) -> None:
        """Start the containers, and wait until all nodes are ready."""
        if self._count != len(NODE_IDS):
            raise LabFailure(
                f"deploy/compose.yaml has {len(NODE_IDS)} nodes, so `--nodes {self._count}` cannot be"
            )
        command = compose_project.compose_command()
        compose_project.check_image(self._image)
        try:
            self._project = ComposeProject(command, self._image)
        except ports.PortsBusyError as error:
            raise LabFailure(str(error)) from error
        guardian.run_if_killed(self._project.removal_command())
        try:
            self._project.up(*NODE_IDS)
            self.wait_ready()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Remove containers, network and volumes."""
        project, self._project = self._project, None
        if project is not None:
            compose_project.remove(project.name)

    def urls(self) -> Mapping[str, str]:
        """Return the published ports."""
        return {node_id: f"http://127.0.0.1:{self.project.ports[node_id]}" for node_id in self._node_ids}

    def log_tail(self, node_id: str) -> str:
        """Return the last lines of a container's log."""
        return self.project.logs(node_id, TAIL_LINES)

    def kill(self, node_id: str) -> None:
        """`docker kill`. Some engines start the container again by themselves, by its restart policy."""
        docker("kill", self.project.container(node_id))

    def terminate(self, node_id: str) -> None:
        """`docker stop`."""
        docker("stop", "--time", str(STOP_S), self.project.container(node_id))

    def start(self, node_id: str) -> None:
        """`docker start`."""
        docker("start", self.project.container(node_id))

    def pause(self, node_id: str) -> None:
        """`docker pause`."""
        docker("pause", self.project.container(node_id))

    def resume(self, node_id: str) -> None:
        """`docker unpause`, if it is paused."""
        if self.project.state(node_id, ".State.Paused") == "true":
            docker("unpause", self.project.container(node_id))

    # -- members, by the recipes of deploy/README.md --------------------------------------------------------

    def add_fourth(self) -> str:
        """Start the fourth node, and add it; return its id. Raises LabFailure."""
        self.project.up(NEW_ID)
        self.project.holdfast(self._other_than(NEW_ID), *add_arguments(NEW_ID))
        self._node_ids = [*NODE_IDS, NEW_ID]
        return NEW_ID

    def remove_fourth(self) -> None:
        """Remove the fourth node with container and volume, added or not. Raises LabFailure."""
        self._node_ids = list(NODE_IDS)
        self.project.holdfast(self._other_than(NEW_ID), *remove_arguments(NEW_ID))
        self.project.remove_container(NEW_ID)
        self.project.remove_volume(NEW_ID)

    def lose_volume(self, node_id: str) -> None:
        """Kill a node, remove its container and its volume, and start it as if nothing had happened."""
        self.kill(node_id)
        self.project.remove_container(node_id)
        self.project.remove_volume(node_id)
        self.project.up(node_id)

    def let_join(self, node_id: str) -> None:
        """Remove a node that lost its volume, let it join, and add it again. Raises LabFailure."""
        helper = self._other_than(node_id)
        self.project.holdfast(helper, *remove_arguments(node_id))
        self.project.up(node_id, **{join_variable(node_id): "true"})
        self.project.holdfast(helper, *add_arguments(node_id))

    def _other_than(self, node_id: str) -> str:
        """Return a node in whose container commands about another one are run."""
        return next(each for each in NODE_IDS if each != node_id)


def remove_arguments(node_id: str) -> list[str]:
    """Return the arguments of `holdfast` that remove a node."""
    return ["cluster", "remove", node_id, "--yes", "--reason", "repair"]


def add_arguments(node_id: str) -> list[str]:
    """Return the arguments of `holdfast` that add a node, and wait until it counts."""
    return ["cluster", "add", node_id, f"{node_id}:7800", "--reason", "repair", "--wait", "1m"]


def join_variable(node_id: str) -> str:
    """Return the variable of deploy/compose.yaml that lets a node join."""
    return f"HOLDFAST_JOIN_{node_id.upper()}"
