"""Runs the code blocks of a page and compares what comes back with what the page shows.

``python tests/repo/readme_blocks.py README.md`` (standard library only) works in an empty folder, in the page's order:

- a block after ``<!-- file: NAME -->`` is written to that file;
- in a ``console`` block each line after ``$ `` is a command, the lines below it its expected stdout (``...`` stands for
  any text; nothing below a command means that its output is not looked at);
- a ``python`` block is run as a script;
- a block after ``<!-- not run: REASON -->`` is left alone.
"""

from __future__ import annotations

import difflib
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
NOTE = re.compile(r"<!-- (?P<key>file|not run): (?P<value>[^\n]*?) -->\n+$")
COMMAND_SECONDS = 600


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block: its language, its text, the line its fence stands on, and what the comment above it says."""

    language: str
    text: str
    line: int
    file: str | None = None
    reason: str | None = None

    @property
    def is_command(self) -> bool:
        """Whether it shows something a person would type."""
        return self.language in {"console", "python", "bash", "sh", "shell"}

    @property
    def runs(self) -> bool:
        """Whether it is executed; ``bash`` blocks never are, they cannot show what comes back."""
        return self.language in {"console", "python"} and self.reason is None and self.file is None

    def commands(self) -> list[tuple[str, str]]:
        r"""Each command with the output shown below it.

        >>> Block("console", "$ a \\\n  b\none\n$ c\n", 1).commands()
        [('a \\\n  b', 'one\n'), ('c', '')]
        """
        if self.language == "python":
            return [(self.text, "")]
        shown = []
        for part in re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]:
            command = re.match(r"(?:.*\\\n)*.*", part)
            assert command
            shown.append((command[0], part[command.end() :].lstrip("\n")))
        return shown


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page, in its order."""
    found = []
    for match in FENCE.finditer(text):
        note = NOTE.search(text[: match.start()])
        notes = {note["key"]: note["value"]} if note else {}
        line = text.count("\n", 0, match.start()) + 1
        found.append(Block(match["language"], match["text"], line, notes.get("file"), notes.get("not run")))
    return found


def matches(shown: str, came: str) -> bool:
    r"""Whether the output is what the page shows, ``...`` standing for any text and spaces at line ends ignored.

    >>> matches("a ... z\n", "a b c z  \n"), matches("a\n", "b\n")
    (True, False)
    """
    pattern = ".*?".join(re.escape(part) for part in tidy(shown).split("..."))
    return re.fullmatch(pattern, tidy(came), re.DOTALL) is not None


def tidy(text: str) -> str:
    """The text without spaces at line ends and empty lines at either end."""
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n")


def run(page: Path, folder: Path) -> list[str]:
    """Execute a page in ``folder``; returns what went wrong, one entry per fault."""
    faults = []
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.file:
            (folder / block.file).write_text(block.text, encoding="utf-8")
        for command, shown in block.commands() if block.runs else []:
            place = f"{page.name}:{block.line}"
            start = time.monotonic()
            argv = [sys.executable, "-c", command] if block.language == "python" else ["bash", "-euc", command]
            done = subprocess.run(
                argv, cwd=folder, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False
            )
            print(f"{place} {time.monotonic() - start:6.1f} s  {command.splitlines()[0]}", flush=True)
            if done.returncode:
                faults.append(f"{place}: `{command}` ended with {done.returncode}:\n{done.stdout}{done.stderr}")
            elif shown and not matches(shown, done.stdout):
                difference = difflib.unified_diff(
                    tidy(shown).split("\n"), tidy(done.stdout).split("\n"), "shown", "came"
                )
                faults.append(f"{place}: `{command}` prints something else:\n" + "\n".join(difference))
    return faults


def main() -> int:
    """Run the pages named on the command line; returns the exit code."""
    faults = []
    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as folder:
            faults += run(Path(name).resolve(), Path(folder))
    print("\n\n".join(faults) or "Every block came back as shown.")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
