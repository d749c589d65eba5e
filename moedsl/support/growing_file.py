"""Read a file that may grow as fast as it is read: as many bytes as it had when it was opened."""

from __future__ import annotations

import io
import os
from typing import Any, BinaryIO


class Until(io.RawIOBase):
    """The bytes from where a file is read to its end of now, without those that are written later."""

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__()
        self._stream, self._left = stream, os.fstat(stream.fileno()).st_size - stream.tell()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        data = self._stream.read(min(self._left, len(buffer)))
        buffer[: len(data)] = data
        self._left -= len(data)
        return len(data)
