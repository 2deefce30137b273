"""Make the picture of the page that README.md shows: python -m tests.ui.picture docs/ui.png."""

import sys
import tempfile
from pathlib import Path
from typing import Final

from holdfast import wire
from scripts.local_cluster import LocalCluster
from tests.ui.browsing import call, chromium, looking
from tests.ui.scene import Scene, fill

HEIGHT: Final = 905
"""Pixels, of which the page needs as many to show a lock with its queue, its graph and its past."""
EARLIER: Final = (
    ("billing-3", "released"),
    ("web-2:312", "released"),
    ("reports-4", "forced"),
    ("billing-5", "released"),
)


def main(path: Path) -> None:
    """Let a cluster have some work to do, and look at one of its locks."""
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster.up(Path(folder) / "cluster") as cluster,
        chromium() as browser,
    ):
        scene = Scene(cluster)
        with looking(browser, cluster) as page:
            for owner, event in EARLIER:
                hold = scene.hold("db/migrate", owner)
                page.wait_for_timeout(900)
                if event == "forced":
                    body = {"name": "db/migrate", "token": hold["token"], "reason": "it hangs"}
                    call(cluster, "POST", wire.LOCK_FORCE_RELEASE, **body)
                else:
                    call(cluster, "POST", wire.LOCK_RELEASE, hold_id=hold["hold_id"])
            fill(scene)
            page.wait_for_timeout(1500)
        with looking(browser, cluster, "lock/db%2Fmigrate") as page:
            page.set_viewport_size({"width": 1200, "height": HEIGHT})
            page.locator(".timeline .now").wait_for()
            page.wait_for_timeout(2500)
            page.screenshot(path=path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
