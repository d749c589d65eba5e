#!/usr/bin/env bash
# Print as Markdown the plan of each .moe file that differs from a commit, and how its plan differs.
# usage: plan_comment.sh COMMIT     exit 1 if a file has no plan; the commit is the one that HEAD and COMMIT share
set -uo pipefail
failed=0
said=$(mktemp)
trap 'rm -f "$said"' EXIT

block() {  # the start of <details>, a title, then a command: its output below the title; messages only if it fails
  local tag=$1 title=$2 text code=0
  shift 2
  text=$("$@" 2>"$said") || { code=$?; text+=$(cat "$said"); }
  printf '<%s><summary>%s</summary>\n\n~~~~text\n%s\n~~~~\n\n</details>\n\n' "$tag" "$title" "$text"
  return "$code"
}

changes() {  # the plan of a file against that of its text in the commit
  git show "$base:$1" | moedsl diff - "$1"
}

if ! base=$(git merge-base "$1" HEAD 2>/dev/null); then
  echo "$1 shares no commit with HEAD here; check out with fetch-depth: 0" | tee /dev/stderr
  exit 1
fi
while IFS= read -r -d '' file; do
  printf '### `%s`\n\n' "$file"
  if [ ! -e "$file" ]; then
    printf 'removed\n\n'
    continue
  fi
  if git cat-file -e "$base:$file" 2>/dev/null; then
    # its old text may have no plan, or several runs
    block 'details open' 'What changes' changes "$file" || true
  fi
  block details Plan moedsl plan "$file" || failed=1
done < <(git diff --no-renames --name-only -z "$base" -- '*.moe')
exit "$failed"
