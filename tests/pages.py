"""The documentation pages, and the code on them."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
TEXTS = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in PAGES}
_FENCED = r"^```(?P<language>{})\n(?P<code>.*?)^```$"
BLOCK = re.compile(_FENCED.format("[a-z]*"), flags=re.DOTALL | re.MULTILINE)
PROGRAM = re.compile(
    _FENCED.format("python|diff") + r"(?:\s*^```text\n(?P<printed>.*?)^```$)?",
    flags=re.DOTALL | re.MULTILINE,
)
SHELL_PAGES = ["docs/commands.md"]
"""Pages of shell commands that run programs shown on them, see `tests.guides.test_shell_pages`."""
PROGRAMS = {
    page: list(PROGRAM.finditer(text))
    for page, text in TEXTS.items()
    if PROGRAM.search(text) and page not in SHELL_PAGES
}
"""Blocks of Python, and of changes to them, with what they print, by page."""


def code_of(program):
    """Return a block as Python; for a diff, the changed code."""
    if program["language"] == "python":
        return program["code"]
    return "".join(
        line[1:] for line in program["code"].splitlines(keepends=True) if line[:1] != "-"
    )
