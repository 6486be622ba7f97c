"""The twin's blocks: a list of free ones, a count of references each, and a dictionary of the cached ones."""

from __future__ import annotations

from collections.abc import Iterable

from tests.twin.settings import Token

Key = tuple[int, int, int, tuple[Token, ...]]
"""What a cached block holds: the group, the salt, the tokens from the start of the text to the block's end, all of them
and those after it that the block depends on."""

NULL = 0


class PrefixCache:
    """Which blocks carry which key, the oldest first; a block's first key is the one it counts as cached by.

    vllm 0.33.0 v1/core/block_pool.py:36 (BlockHashToBlockMap), :665 (_insert_block_hash).
    """

    def __init__(self) -> None:
        self.blocks: dict[Key, list[int]] = {}
        self.keys: dict[int, list[Key]] = {}

    def find(self, key: Key) -> int | None:
        """The block that has carried ``key`` longest."""
        found = self.blocks.get(key)
        return found[0] if found else None

    def keys_of(self, block: int) -> list[Key]:
        """All keys of a block, its own first."""
        return list(self.keys.get(block, []))

    def key_of(self, block: int) -> Key | None:
        """A block's own key."""
        return self.keys[block][0] if block in self.keys else None

    def tokens_of(self, block: int) -> int:
        """Tokens from the start of the text to where a block's own key says it ends; 0 without a key."""
        key = self.key_of(block)
        return key[2] if key else 0

    def add(self, key: Key, block: int) -> None:
        """Let a block carry a key, besides others it may have."""
        assert block != NULL
        if key not in self.keys.setdefault(block, []):
            self.keys[block].append(key)
            self.blocks.setdefault(key, []).append(block)

    def rename(self, key: Key, block: int) -> None:
        """Let a block carry this key and no other."""
        assert self.tokens_of(block) < key[2]
        self.drop(block)
        self.add(key, block)

    def drop(self, block: int) -> bool:
        """Take all keys off a block, if it has any."""
        keys = self.keys.pop(block, [])
        for key in keys:
            self.blocks[key].remove(block)
            if not self.blocks[key]:
                del self.blocks[key]
        return bool(keys)


class BlockPool:
    """Blocks 1 … num_blocks-1; block 0 is the null block and never comes or goes.

    vllm 0.33.0 v1/core/block_pool.py: get_new_blocks, touch, free_blocks.
    """

    def __init__(self, num_blocks: int) -> None:
        self.free = list(range(1, num_blocks))
        self.references = [0] * num_blocks
        self.cache = PrefixCache()
        self.evicted = 0

    def clear(self) -> bool:
        """Forget all that is cached; not while a block is in use (vllm 0.33.0 v1/core/block_pool.py:822)."""
        if len(self.free) < len(self.references) - 1:
            return False
        self.cache = PrefixCache()
        return True

    def take(self, count: int) -> list[int]:
        """The first ``count`` free blocks; what they held in the cache is lost."""
        taken, self.free = self.free[:count], self.free[count:]
        assert len(taken) == count
        for block in taken:
            self.evicted += self.cache.drop(block)
            self.references[block] = 1
        return taken

    def touch(self, block: int) -> None:
        """One more table names a cached block."""
        if self.references[block] == 0:
            self.free.remove(block)
        self.references[block] += 1

    def release(self, blocks: Iterable[int]) -> None:
        """One table less names these blocks; of those nobody names, unkeyed ones go to the front, keyed to the back."""
        dropped = []
        for block in blocks:
            if block != NULL:
                self.references[block] -= 1
                if self.references[block] == 0:
                    dropped.append(block)
        first = [block for block in dropped if block not in self.cache.keys]
        last = [block for block in dropped if block in self.cache.keys]
        self.free = first + self.free + last
