"""Cache compiled templates in the user's cache directory, by the template's content and the version of Jinja2."""

from __future__ import annotations

import hashlib

import jinja2
from jinja2.bccache import Bucket, BytecodeCache

from moedsl.support import disk_cache


class DiskCache(BytecodeCache):
    """A cache of templates on disk. Jinja2 checks the checksum; a damaged entry is compiled again."""

    def load_bytecode(self, bucket: Bucket) -> None:
        body = disk_cache.load(_name(bucket))
        if body is not None:
            bucket.bytecode_from_string(body)

    def dump_bytecode(self, bucket: Bucket) -> None:
        disk_cache.save(_name(bucket), bucket.bytecode_to_string())


def _name(bucket: Bucket) -> str:
    made_by = hashlib.sha256(f"{jinja2.__version__}\0{bucket.key}\0{bucket.checksum}".encode()).hexdigest()
    return f"{made_by[:40]}.template"
