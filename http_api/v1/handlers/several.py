"""Several kinds at once: acquire locks, permits and places of rate limits together.

What is acquired so is a hold of locks for everything else: `handlers.locks` renews and releases it.
"""

from http_api.server.call import Call, Reply
from http_api.v1 import waiting
from lockapi.gateway import Gateway


async def acquire_several(gateway: Gateway, call: Call) -> Reply:
    """Acquire all or nothing, waiting in all queues, and for the reserved moment, if asked to."""
    return await waiting.SEVERAL.reply(gateway, call)
