"""Shared memory as words with known values, and what global memory and parameters hold in a script."""

from __future__ import annotations

from verifier.analyses.protocol.values import Scalar, Unknown

_UNWRITTEN = Unknown("shared memory that no modelled store wrote")


class SharedWords:
    """32-bit words of all CTAs by shared::cluster address; a word that is not known is absent or Unknown."""

    def __init__(self) -> None:
        self._words: dict[int, Scalar] = {}

    def write(self, address: int, size: int, value: Scalar) -> None:
        """Write `size` bytes. Parts of words make them unknown."""
        if size < 4 or address & 3:
            for word in range(address >> 2, (address + size + 3) >> 2):
                self._words[word] = Unknown("a store of less than a word")
            return
        word = address >> 2
        for index in range(size // 4):
            part = value >> (32 * index) & 0xFFFFFFFF if isinstance(value, int) else value
            self._words[word + index] = part

    def read(self, address: int, size: int) -> Scalar:
        """Read `size` bytes as one unsigned number."""
        if size < 4:
            whole = self._words.get(address >> 2, _UNWRITTEN)
            return whole >> 8 * (address & 3) & (1 << 8 * size) - 1 if isinstance(whole, int) else whole
        total = 0
        for index in range(size // 4):
            word = self._words.get((address >> 2) + index, _UNWRITTEN)
            if isinstance(word, Unknown):
                return word
            total |= word << (32 * index)
        return total

    def copy(self) -> dict[int, object]:
        """Address / 4 -> value of every word written so far."""
        return dict(self._words)

    def forget(self, low: int, high: int, why: Unknown) -> None:
        """Bytes [low, high) are overwritten with something unknown."""
        first, last = low >> 2, (high + 3) >> 2
        known = self._words
        for word in range(first, last) if last - first < len(known) else [w for w in known if first <= w < last]:
            if word in known:
                known[word] = why
