"""Build the documentation as a site: prepare its pages, run MkDocs, check what came out. See scripts/docs."""

import os
import subprocess
import sys
from pathlib import Path

from scripts.lib import site_links, site_pages

ROOT = Path(__file__).resolve().parents[1]
SHOWN_MAX = 20
"""Lines about broken links that are printed: what is wrong in the theme is wrong on every page."""


def main() -> int:
    """Build it; return the exit code."""
    count = site_pages.prepare(ROOT, ROOT / "build" / "docs-pages")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--clean"]
    # The theme's makers announce their next project with every build.
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, check=False)
    if done.returncode:
        return done.returncode
    site = ROOT / "build" / "docs"
    found = list(site_links.wrong(site))
    for line in found[:SHOWN_MAX]:
        print(line, file=sys.stderr)
    if not found:
        print(f"{count} pages: {site / 'index.html'}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
