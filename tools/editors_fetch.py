"""Fetch programs of a newer Debian release and unpack them with their dependencies into the cache; install nothing.

`tools/editors_fetch.py neovim hx emacs-nox` prints the path of each one. The mirror is the one that this machine's
apt uses. If it does not serve the release, the reason is printed and the exit status is 1.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

RELEASE = "trixie"


class FetchFailed(Exception):
    """The reason why the programs could not be fetched, as a message for the user."""


@dataclass(frozen=True)
class Unpacked:
    """A package and all its dependencies in one folder; it runs through the folder's own dynamic loader."""

    root: Path

    def command(self, program: str) -> list[str]:
        """The words that start `program` (a path below the folder, such as usr/bin/nvim)."""
        loader = next(self.root.glob("usr/lib*/ld-linux*.so.*"), None) or next(self.root.rglob("ld-linux*.so.*"))
        libraries = sorted({str(path.parent) for path in self.root.rglob("*.so*")})
        return [str(loader), "--library-path", ":".join(libraries), str(self.root / program)]


def cache() -> Path:
    """Return the folder of downloaded files, outside the checkout."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "moedsl"


def fetch(package: str) -> Unpacked:
    """`package` from the cache, or downloaded, checked by apt and unpacked; raises FetchFailed."""
    root = cache() / RELEASE / package
    done = root.with_name(f"{package}.done")
    root.parent.mkdir(parents=True, exist_ok=True)
    with root.with_name("lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(root, ignore_errors=True)
            _unpack(_download(package, root.parent / "apt"), root)
            done.touch()
    return Unpacked(root)


def mirror() -> str:
    """Return the address of the first mirror of Debian's main archive in this machine's apt configuration."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise FetchFailed(f"Debian {RELEASE}'s packages need apt-get and dpkg-deb, which are missing here")
    query = ["apt-get", "indextargets", "--format", "$(LABEL)|$(REPO_URI)", "Created-By: Packages"]
    lines = _run(query, "reading apt's configuration").splitlines()
    addresses = [address for label, _, address in (line.partition("|") for line in lines) if label == "Debian"]
    if not addresses:
        raise FetchFailed("apt knows no mirror of Debian's main archive here (if it should: apt-get update)")
    return addresses[0]


def _download(package: str, folder: Path) -> list[Path]:
    apt = ["apt-get", "-q", *_private(folder)]
    if not any((folder / "state" / "lists").glob("*_Packages*")):
        (folder / "sources.list").write_text(f"deb {mirror()} {RELEASE} main\n")
        _run([*apt, "update"], f"the package lists of Debian {RELEASE}")
    shutil.rmtree(folder / "cache" / "archives", ignore_errors=True)
    (folder / "cache" / "archives" / "partial").mkdir(parents=True)
    wanted = [*apt, "install", "--download-only", "--no-install-recommends", "-y", package]
    _run(wanted, f"{package} of Debian {RELEASE}")
    return sorted((folder / "cache" / "archives").glob("*.deb"))


def _private(folder: Path) -> list[str]:
    """Return the options that keep apt inside `folder`: its own lists, its own empty system, this machine's keys."""
    for name in ("state/lists/partial", "cache", "empty"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "status").touch()
    places = {
        "Dir::State": folder / "state",
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder / "cache",
        "Dir::Etc::sourcelist": folder / "sources.list",
        "Dir::Etc::sourceparts": folder / "empty",
        "Dir::Etc::preferencesparts": folder / "empty",
        "APT::Sandbox::User": "",
    }
    return [word for key, value in places.items() for word in ("-o", f"{key}={value}")]


def _unpack(archives: Sequence[Path], root: Path) -> None:
    root.mkdir(parents=True)
    for archive in archives:
        _run(["dpkg-deb", "--extract", str(archive), str(root)], f"unpacking {archive.name}")


def _run(command: Sequence[str], what: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        last = " / ".join((done.stderr or done.stdout).strip().splitlines()[-3:])
        raise FetchFailed(f"{what}: {command[0]} ended with {done.returncode}: {last}")
    return done.stdout


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    arguments.add_argument("packages", nargs="+")
    try:
        for package in arguments.parse_args().packages:
            print(f"{package}: {fetch(package).root}")
    except FetchFailed as failed:
        print(f"editors_fetch: {failed}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
