"""`moedsl fmt`: files in their one layout. A file that does not parse is left as it is."""

from __future__ import annotations

import os
import sys
import tempfile
from argparse import Namespace
from pathlib import Path

from moedsl import reader
from moedsl.commands import talk
from moedsl.printer import format_source


def run(a: Namespace) -> int:
    return max(_one(f, a.check) for f in a.files)


def _one(file: str, check: bool) -> int:
    source, found = reader.read(file)
    if source is None:
        talk.say(found, {})
        return 1
    text, found = format_source(source)
    talk.say(found, {source.name: source})
    if text is None:
        return 1
    if file == "-" and not check:
        sys.stdout.write(text)
    elif text != source.text and check:
        print(f"would change {file}", file=sys.stderr)
        return 1
    elif text != source.text:
        replace(Path(file), text)
    return 0


def _umask() -> int:
    """What the user's umask takes away; it can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def replace(path: Path, text: str) -> None:
    """Writes a file whole or not at all; a link stays a link, the mode stays."""
    target = path.resolve()
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as f:
            f.write(text)
        os.chmod(temporary, target.stat().st_mode if target.exists() else 0o666 & ~_umask())
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
