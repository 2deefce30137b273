"""The end of a run as clients see it: everything that is held."""

from urllib.parse import urlencode

from lab.chaos.client import Client
from lab.chaos.history import FinalHolds, Holder, Note
from lab.chaos.lab import Lab, now_ns

PAGE: int = 1000


async def record_final_holds(lab: Lab) -> bool:
    """Record all locks that are held under the lab's prefix; return whether the cluster said.

    For the time when all is healed, and no workload runs any more.
    """
    call_ns = now_ns()
    holders: list[Holder] = []
    after = ""
    async with Client(lab, "ending", 0) as client:
        while True:
            query = urlencode(
                {"prefix": f"{lab.prefix}/", "limit": PAGE} | ({"after": after} if after else {})
            )
            page = await client.ask("list", lab.prefix, f"/v1/locks?{query}", method="GET")
            if not page.is_ok:
                lab.history.write(Note(at_ns=now_ns(), text=f"no final listing: {page.operation.code}"))
                return False
            holders += [
                Holder(name=lock["name"], owner=holder["owner"], token=holder["token"])
                for lock in page.body["locks"]
                for holder in lock["holders"]
            ]
            if page.body["next"] is None:
                break
            after = page.body["next"]
    final = FinalHolds(
        kind="lock", prefix=f"{lab.prefix}/", call_ns=call_ns, return_ns=now_ns(), holders=holders
    )
    lab.history.write(final)
    return True
