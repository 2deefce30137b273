"""Every kind of client that a simulated world has."""

from tests.simulation.workload.client import Client
from tests.simulation.workload.crowd import Crowd
from tests.simulation.workload.stream_client import StreamClient

__all__ = ["AnyClient"]

AnyClient = Client | Crowd | StreamClient
