"""Post the plans of a pull request as its comment, or put them into the comment of an earlier run; for action.yml.

usage: GH_TOKEN=TOKEN post_comment.py FILE     FILE is what plan_comment.sh printed; a runner's environment has the rest

Without a pull request, or without plans and an earlier comment, it posts nothing.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

MARK = "<!-- moedsl plan -->"
"""What the comment begins with; others of the same user are not touched."""
MOST = 65_536
"""The most characters of a comment."""
PAGE = 100


def main(file: str) -> int:
    event = json.loads(Path(os.environ["GITHUB_EVENT_PATH"]).read_text(encoding="utf-8"))
    number = event.get("pull_request", {}).get("number")
    if number is None or not Path(file).exists():  # no file: moedsl could not be installed
        return 0
    try:
        _post(f"repos/{os.environ['GITHUB_REPOSITORY']}/issues", number, Path(file).read_text(encoding="utf-8"))
    except HTTPError as e:
        if e.code != 403:
            print(f"::error::the comment was refused: {e.code} {e.reason}")
            return 1
        print(
            "::warning::the token may not write to pull requests, as none of a fork may; the plans are in the summary "
            "of this job"
        )
    return 0


def _post(issues: str, number: int, plans: str) -> None:
    earlier = _earlier(f"{issues}/{number}/comments")
    if earlier is not None:
        _ask("PATCH", f"{issues}/comments/{earlier}", {"body": body(plans)})
    elif plans:
        _ask("POST", f"{issues}/{number}/comments", {"body": body(plans)})


def _earlier(comments: str) -> int | None:
    """Return the id of the comment of an earlier run."""
    page = 1
    while found := _ask("GET", f"{comments}?per_page={PAGE}&page={page}"):
        for comment in found:
            if comment["body"].startswith(MARK):
                return comment["id"]
        page += 1
    return None


def body(plans: str) -> str:
    """Write the comment: the files that have room in it, and the names of the others."""
    parts = re.split(r"^(?=### `)", plans, flags=re.MULTILINE)
    kept, left = f"{MARK}\n", list[str]()
    for part in parts:
        name = part.partition("\n")[0].removeprefix("### ")
        if left or len(kept) + len(part) > MOST - _rest(parts):
            left.append(name)
        else:
            kept += part
    if left:
        kept += f"Too long for a comment, and in the summary of the job: {', '.join(left)}\n"
    return kept[:MOST] if plans else f"{MARK}\nNo .moe file differs from the base.\n"


def _rest(parts: list[str]) -> int:
    """The room that the names of all files would need."""
    return 80 + sum(len(part.partition("\n")[0]) for part in parts)


def _ask(method: str, path: str, data: dict[str, str] | None = None) -> Any:
    headers = {"Accept": "application/vnd.github+json", "Authorization": f"Bearer {os.environ['GH_TOKEN']}"}
    content = None if data is None else json.dumps(data).encode()
    url = f"{os.environ['GITHUB_API_URL']}/{path}"
    with urlopen(Request(url, content, headers, method=method), timeout=60) as answer:
        return json.load(answer)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
