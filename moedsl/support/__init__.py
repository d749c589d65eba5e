"""The ground of the house: diagnostics, texts, files and limits, which know nothing of models or GPUs.

Every room may import this one, and it imports none. What two rooms need and what has nothing to do with training stands
here; what only one room needs stays in that room.

Read first what every room uses:

| To | open |
| --- | --- |
| name a place in a program (`Source`, `Span`) | `source.py` |
| report an error, a warning or a note | `diagnostics.py`, with its texts and pages in `pages.md` |
| print diagnostics for people, or as SARIF for code hosts | `render.py` |
| lay out tables and paragraphs, and show hidden characters | `text.py` |
| write an attrs class as JSON, and read it back | `json_form.py` |
| find the files that ship with moedsl, and the user's cache | `resources.py` |

Then what guards the work:

| To | open |
| --- | --- |
| read what somebody else wrote: special files, JSON, Python | `foreign.py` |
| write all files or none, and never over an edited one | `files.py` |
| stop the work at so many seconds, or so much memory | `limits.py` |
| keep the compiled grammar and standard library | `compiled.py` |
| draw charts | `svg.py` |

A new diagnostic begins in `pages.md`: a heading `## ID (SEVERITY)`, its texts as `- MESSAGE` with helps below them, and
its page, which `moedsl explain ID` prints. `error("ID", span, NAME=value)` then makes it; an id without a heading
raises.
"""
