"""The ground of the house: diagnostics, texts, files and limits, which know nothing of models or GPUs.

Every room may import this one, and it imports none. Code that several rooms need and that is unrelated to training is
here; what only one room needs stays in that room.

Start with what every room uses:

| To | open |
| --- | --- |
| name a place in a program (`Source`, `Span`) | `source.py` |
| report an error, a warning or a note | `diagnostics.py`, with its texts and pages in `pages.md` |
| print diagnostics for people, or as SARIF for code hosts | `render.py` |
| lay out tables and paragraphs, and show hidden characters | `text.py` |
| write an attrs class as JSON, and read it back | `json_form.py` |
| find the files that ship with moedsl, and the user's cache | `resources.py` |

Then what protects the work:

| To | open |
| --- | --- |
| read input from others: special files, JSON, Python | `foreign.py` |
| write all files or none, never over an edited one | `files.py` |
| recognise secrets, and mask them in what is shown | `secrets.py` |
| limit the seconds and memory of the work | `limits.py` |
| keep the compiled grammar and standard library | `compiled.py` |
| draw charts | `svg.py` |

To add a diagnostic, start in `pages.md`: a heading `## ID (SEVERITY)`, its texts as `- MESSAGE` with helps below them,
and its page, which `moedsl explain ID` prints. `error("ID", span, NAME=value)` then makes it, and raises ValueError for
an id without a heading.
"""
