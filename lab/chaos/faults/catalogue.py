"""All faults by name."""

from typing import Any

from lab.chaos.faults import clocks, containers, disks, founding, members, mistakes, network
from lab.chaos.faults import process_faults as processes
from lab.chaos.faults.fault import Fault

_CLASSES: tuple[type[Fault[Any]], ...] = (
    processes.KillFollower,
    processes.KillLeader,
    processes.KillMajority,
    processes.KillAll,
    processes.StopLeader,
    processes.PauseLeader,
    processes.PauseFollower,
    processes.PauseBriefly,
    processes.RollingRestart,
    members.TransferStorm,
    members.MemberAdded,
    members.LostDisk,
    members.MemoryLimit,
    founding.FoundingDiskLost,
    mistakes.WrongPeers,
    mistakes.ChangedSecret,
    mistakes.ForeignNode,
    mistakes.CopiedDirectory,
    disks.SlowDisk,
    disks.HangingDisk,
    disks.FailingDisk,
    disks.FullDisk,
    disks.TornTail,
    clocks.DriftingClock,
    clocks.SlowClock,
    clocks.WallClockStep,
    clocks.FastClock,
    network.LeaderCut,
    network.LeaderIsolated,
    network.ClientsCut,
    network.FollowerCut,
    network.BlackHole,
    network.OneWayIn,
    network.OneWayOut,
    network.Bridge,
    network.Ring,
    network.AllApart,
    network.MinorityWithLeader,
    network.Split,
    network.Flapping,
    network.Delay,
    network.Jitter,
    network.Loss,
    network.Reorder,
    network.Duplicate,
    network.Corrupt,
    network.SlowLink,
    containers.RestartAll,
    containers.NetworkOff,
    containers.NetworkOffLeader,
    containers.VolumeLost,
    containers.NodeAdded,
)

FAULTS: dict[str, type[Fault[Any]]] = {fault.name: fault for fault in _CLASSES}
