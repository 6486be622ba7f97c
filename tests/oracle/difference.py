"""Comparing two step logs line by line, and counting what happened in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any, Self

Line = dict[str, Any]
EVENT_KEYS = ("step", "events", "state", "finished", "stalled", "drafts", "refused", "failed", "raised")


@dataclass(slots=True)
class Tally:
    """What was compared, so that a run shows that the interesting things happened at all."""

    cases: int = 0
    refused: int = 0
    failed: int = 0
    stalled: int = 0
    endless: int = 0
    steps: int = 0
    scheduled_tokens: int = 0
    admissions: int = 0
    hits: int = 0
    hit_tokens: int = 0
    copies: int = 0
    preemptions: int = 0
    evictions: int = 0
    finished: int = 0
    states: int = 0
    drafts: int = 0
    rejected: int = 0
    looked_ahead: int = 0
    """Hits found under keys that look ahead."""
    dropped: int = 0
    """Hits that lost their last block."""
    kinds: Counter[str] = field(default_factory=Counter)
    """Cases that ran to their end or their stall, by kind of layer."""

    def __iadd__(self, other: Tally) -> Self:
        for item in fields(self):
            setattr(self, item.name, getattr(self, item.name) + getattr(other, item.name))
        return self

    def add(self, line: Line) -> None:
        """Count one line of vLLM's log."""
        if "step" in line:
            self.steps += 1
            self.scheduled_tokens += sum(count for _, count in line["scheduled"])
            self.admissions += len(line["hits"])
            self.hits += sum(count > 0 for _, count in line["hits"])
            self.hit_tokens += sum(count for _, count in line["hits"])
            self.copies += len(line.get("copies", ()))
        elif "state" in line:
            self.states += 1
        elif "finished" in line:
            self.finished += 1
        elif "drafts" in line:
            _, drafts, accepted = line["drafts"]
            self.drafts += drafts
            self.rejected += drafts - accepted
        elif "done" in line:
            self.preemptions += line["done"].get("preemptions", 0)
            self.evictions += line["done"].get("evictions") or 0
            self.endless += line["done"].get("gave_up", False)
            self.looked_ahead += line["done"].get("looked_ahead", 0)
            self.dropped += line["done"].get("dropped", 0)
        self.refused += "refused" in line
        self.failed += "failed" in line
        self.stalled += "stalled" in line

    def __str__(self) -> str:
        return (
            f"{self.cases} cases ({self.refused} refused at start, {self.failed} failed on the way,"
            f" {self.stalled} stalled,"
            f" {self.endless} endless),"
            f" {self.steps:,} steps,"
            f" {self.scheduled_tokens:,} tokens, {self.finished:,} requests finished, {self.admissions:,} admissions,"
            f" {self.hits:,} with a hit ({self.hit_tokens:,} tokens), {self.copies:,} copies of blocks,"
            f" {self.preemptions:,} preemptions,"
            f" {self.evictions:,} evictions, {self.states:,} full states,"
            f" {self.drafts:,} drafts ({self.rejected:,} rejected; {self.looked_ahead:,} hits looked ahead,"
            f" {self.dropped:,} dropped a block);"
            f" cases with {', '.join(f'{kind} {count}' for kind, count in self.kinds.most_common())}"
        )


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where two logs part."""

    step: int
    key: str
    ours: Any
    theirs: Any

    @property
    def sort(self) -> str:
        """``refused`` or ``raised`` where one side did that, else ``decided``: they decided differently."""
        sides = [side for side in (self.ours, self.theirs) if isinstance(side, dict)]
        return next((word for word in ("refused", "raised") if any(word in side for side in sides)), "decided")

    def __str__(self) -> str:
        sides = f"  ours   {_short(self.ours)}\n  vLLM's {_short(self.theirs)}"
        return f"first difference: step {self.step}, {self.key}\n{sides}"


def _short(value: Any, width: int = 1500) -> str:
    text = repr(value)
    return text if len(text) <= width else f"{text[:width]} … ({len(text)} characters)"


def plain(value: Any) -> Any:
    """Tuples as lists, so that a log held in memory equals one read from JSON."""
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


def events(lines: Iterable[Line]) -> Iterator[Line]:
    """The lines that take part in a comparison, in one form.

    Requests without a new block are left out, stalled ids are sorted; the words of refusals and failures do not matter.
    """
    for raw in lines:
        line = plain(raw)
        if "step" in line:
            line["new_blocks"] = [[name, groups] for name, groups in line["new_blocks"] if any(groups)]
            line.setdefault("copies", [])
        elif "stalled" in line:
            line["stalled"] = sorted(line["stalled"])
        elif "refused" in line:
            line["refused"] = True
        elif "failed" in line:
            line["failed"] = True
        if any(key in line for key in EVENT_KEYS):
            yield line


@dataclass(slots=True)
class Comparison:
    """Compares two logs of one case; ``run`` returns the first difference, or None where they agree to the end."""

    tally: Tally = field(default_factory=Tally)
    step: int = 0
    version: str = ""

    def run(self, ours: Iterable[Line], theirs: Iterable[Line]) -> Difference | None:
        """Read both logs side by side. ``theirs`` may end in a ``done`` line; its sums are compared if ours has one."""
        endings: list[Line] = [{}, {}]
        our_events = events(self._watch(ours, endings, 0))
        their_events = events(self._watch(theirs, endings, 1))
        while True:
            left = next(our_events, None)
            right = next(their_events, None)
            if left is None or right is None:
                break
            self.step = int(right.get("step") or right.get("state") or self.step)
            found = self._compare(left, right)
            if found is not None:
                return found
        if endings[1].get("gave_up"):  # equal for as many steps as the case allows
            return None
        if left is not None or right is not None:
            return Difference(self.step, "one side ended", left, right)
        return self._compare_sums(*endings)

    def _watch(self, lines: Iterable[Line], endings: list[Line], side: int) -> Iterator[Line]:
        for line in lines:
            if side == 1:
                self.tally.add(line)
            if "done" in line:
                endings[side] = line["done"]
                self.version = line["done"].get("vllm", self.version)
            yield line

    def _compare(self, left: Line, right: Line) -> Difference | None:
        kinds = [next(key for key in EVENT_KEYS if key in line) for line in (left, right)]
        if kinds[0] != kinds[1]:
            return Difference(self.step, "kind of line", left, right)
        for key in right:
            if left.get(key) != right[key]:
                return self._narrow(key, left.get(key), right[key])
        return None

    def _narrow(self, key: str, left: Any, right: Any) -> Difference:
        """Point at the entry that differs inside a list or table."""
        if isinstance(left, dict) and isinstance(right, dict):
            for name in [*right, *left]:
                if left.get(name) != right.get(name):
                    return Difference(self.step, f"{key}, {name}", left.get(name), right.get(name))
        if isinstance(left, list) and isinstance(right, list) and len(str(right)) > 1500:
            for index, (one, other) in enumerate(zip(left, right, strict=False)):
                if one != other:
                    near = slice(max(0, index - 3), index + 12)
                    return Difference(self.step, f"{key}[{index}], with its neighbours", left[near], right[near])
        return Difference(self.step, key, left, right)

    def _compare_sums(self, ours: Line, theirs: Line) -> Difference | None:
        for key in ("steps", "preemptions", "evictions"):
            if key in ours and key in theirs and ours[key] != theirs[key]:
                return Difference(self.step, f"total {key}", ours[key], theirs[key])
        return None
