"""Work under a lock with the Python client: wait for it, keep it, notice its loss, see who has it.

Run it with the nodes in HOLDFAST_NODES, or with the three of `scripts/cluster up` on this machine.
"""

import asyncio
import sys

import holdfast

LOCK = "examples/nightly-report"


async def report(hold: holdfast.Hold) -> None:
    """Do the protected work, in steps; pass the token to whatever is written to."""
    for step in range(1, 4):
        hold.ensure_valid()  # raises LeaseLost: nobody may work on after the lease
        print(f"step {step} with token {hold.token}")
        await asyncio.sleep(0.1)


async def main() -> int:
    """Report under the lock, unless somebody else keeps it for more than ten seconds."""
    async with holdfast.Client(owner="reporter", timeout=10) as client:
        lock = client.lock(LOCK, ttl=5, wait=10, note="the nightly report")
        try:
            async with lock as hold:  # renewed in the background while the body runs, then released
                await report(hold)
        except holdfast.LockHeld as error:
            print(f"somebody else reports: {error.detail}")
            return 1
        except holdfast.LeaseLost as error:
            print(f"the lock was lost, the body was cancelled: {error}")
            return 1
        info = await client.get_lock(LOCK)
        print(f"the lock is {info.state}")
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
