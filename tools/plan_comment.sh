#!/usr/bin/env bash
# Print as Markdown the plan of each .moe file that differs from a commit, and how its plan differs.
# usage: plan_comment.sh COMMIT     exit 1 if a file has no plan
set -uo pipefail
base=$1
failed=0

block() {  # a title, then a command: its output folded below the title
  local title=$1 text code=0
  shift
  text=$("$@" 2>&1) || code=$?
  printf '<details><summary>%s</summary>\n\n~~~~text\n%s\n~~~~\n\n</details>\n\n' "$title" "$text"
  return "$code"
}

while IFS= read -r -d '' file; do
  printf '### `%s`\n\n' "$file"
  if [ ! -e "$file" ]; then
    printf 'removed\n\n'
    continue
  fi
  if git cat-file -e "$base:$file" 2>/dev/null; then
    block 'What changes' moedsl diff "$base:$file" "$file" || true  # its old text may have no plan, or several runs
  fi
  block 'Plan' moedsl plan "$file" || failed=1
done < <(git diff --name-only -z "$base" -- '*.moe')
exit "$failed"
