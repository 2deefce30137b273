"""The pages of the documentation's site, made from docs/: what lies outside of it comes along.

On a forge a link to a test or a script leads to that file. A site has no such files: each one that a page
links to becomes a page of its own, with its text; so do README-like pages beside docs/. Writes files only
below the folder that it is given.
"""

import os
import re
import shutil
from pathlib import Path, PurePosixPath
from typing import Final

LINK: Final = re.compile(r"(?<=\]\()(?![a-z]+:)([^)\s#]+)((?:#[^)\s]*)?)(?=\))")
"""A link to a file, and its anchor, in Markdown."""
FENCED: Final = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LANGUAGES: Final = {".py": "python", ".sh": "bash", ".c": "c", ".md": "markdown", "": "bash", ".yaml": "yaml"}
"""How files are highlighted, by the end of their names; others are plain text."""
PROJECT: Final = PurePosixPath("project")
"""The folder of pages that are made from Markdown outside of docs/."""
SOURCE: Final = PurePosixPath("source")
"""The folder of pages that show a file."""


class Site:
    """The pages that are to be written, by path, and where each file of the repository is shown."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._docs = root / "docs"
        self.pages: dict[PurePosixPath, str] = {}

    def collect(self) -> None:
        """Make all pages. Raises FileNotFoundError for a link that leads nowhere."""
        for path in sorted(self._docs.rglob("*.md")):
            self._page_of(path)
        self.pages[PurePosixPath("decisions/index.md")] = self._decisions()
        # The README and the changelog belong to the site, whether or not a page links to them.
        for name in ("CHANGELOG.md", "CONTRIBUTING.md"):
            self._page_of(self._root / name)

    def write(self, folder: Path) -> None:
        """Write all pages, and the pictures, styles and scripts of docs/."""
        shutil.rmtree(folder, ignore_errors=True)
        for page, text in self.pages.items():
            target = folder / page
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, "utf-8")
        for path in self._docs.iterdir():
            if path.suffix in {".svg", ".png", ".css", ".js"}:
                shutil.copy(path, folder)

    def _page_of(self, path: Path) -> PurePosixPath:
        """Return the page that shows a file or folder; make it, if it is the first time."""
        page = self._name_of(path)
        if page in self.pages or page.suffix != ".md":
            return page
        self.pages[page] = ""  # pages link to each other
        if path.is_dir():
            self.pages[page] = self._listing(path)
        elif path.suffix == ".md":
            self.pages[page] = self._linked(path, page)
        else:
            self.pages[page] = self._shown(path)
        return page

    def _name_of(self, path: Path) -> PurePosixPath:
        relative = PurePosixPath(path.relative_to(self._root).as_posix())
        if relative.parts[0] == "docs" and relative.suffix in {".md", ".svg", ".png"}:
            return relative.relative_to("docs")
        if relative == PurePosixPath("README.md"):
            return PurePosixPath("index.md")
        if relative == PurePosixPath("docs/decisions"):
            return PurePosixPath("decisions/index.md")
        if relative.suffix == ".md":
            return PROJECT / relative
        return SOURCE / relative / "index.md" if path.is_dir() else SOURCE / f"{relative}.md"

    def _linked(self, path: Path, page: PurePosixPath) -> str:
        """Return the text of a document, with links to where the site has what they name."""

        def new_target(link: re.Match[str]) -> str:
            target = Path(os.path.normpath(path.parent / link[1]))
            if not target.exists():
                raise FileNotFoundError(f"{path.relative_to(self._root)}: {link[1]}")
            return os.path.relpath(self._page_of(target), page.parent) + link[2]

        text = path.read_text("utf-8")
        kept, at = [], 0
        for block in FENCED.finditer(text):
            kept += [LINK.sub(new_target, text[at : block.start()]), block[0]]
            at = block.end()
        return "".join(kept) + LINK.sub(new_target, text[at:])

    def _shown(self, path: Path) -> str:
        """Return a page with the text of a file, which the search leaves out."""
        text = path.read_text("utf-8")
        fence = "````" if "```" in text else "```"
        language = LANGUAGES.get(path.suffix, "text")
        return f"{_NOT_SEARCHED}# {path.name}\n\n{self._place(path)}\n\n{fence}{language}\n{text}{fence}\n"

    def _listing(self, path: Path) -> str:
        names = sorted(
            child.name + "/" * child.is_dir() for child in path.iterdir() if not child.name.startswith("__")
        )
        listed = "".join(f"- `{name}`\n" for name in names)
        return f"{_NOT_SEARCHED}# {path.name}/\n\n{self._place(path)}\n\n{listed}"

    def _place(self, path: Path) -> str:
        return f"`{path.relative_to(self._root).as_posix()}` in the repository."

    def _decisions(self) -> str:
        """Return the list of decisions, by number and title."""
        rows = []
        for path in sorted((self._docs / "decisions").glob("*.md")):
            title = path.read_text("utf-8").partition("\n")[0].lstrip("# ")
            rows.append(f"- [{title}]({path.name})\n")
        return f"# Decisions\n\nWhy the design is as it is, one page for each choice.\n\n{''.join(rows)}"


_NOT_SEARCHED: Final = "---\nsearch:\n  exclude: true\n---\n\n"


def prepare(root: Path, folder: Path) -> int:
    """Write the pages of the site of a checkout into `folder`; return how many."""
    site = Site(root)
    site.collect()
    site.write(folder)
    return len(site.pages)
