/** The plan panel's pages: plain text of the compiler into HTML in the editor's own colours. */

const STYLE = `
  body { font-family: var(--vscode-font-family); padding: 0 1rem 1rem; }
  h1 { font-size: 1.15rem; font-weight: 600; margin: 1rem 0 .5rem; }
  h2 { font-size: 1rem; font-weight: 600; margin: 1rem 0 .2rem; color: var(--vscode-textLink-foreground); }
  pre { font-family: var(--vscode-editor-font-family); font-size: calc(var(--vscode-editor-font-size) * .9);
        margin: 0; white-space: pre-wrap; line-height: 1.45; }
  .note { color: var(--vscode-descriptionForeground); }
  .stale { opacity: .55; }
`;

/** The plan as `moedsl plan` prints it: a line that starts at the margin is a heading, the rest its text. */
export function planPage(text: string, note: string): string {
  const blocks = sections(text).map((section, index) => {
    const tag = index === 0 ? "h1" : "h2";
    const heading = section.heading === "" ? "" : `<${tag}>${escaped(section.heading)}</${tag}>`;
    return `${heading}<pre>${escaped(section.lines.join("\n"))}</pre>`;
  });
  return page(`<p class="note">${escaped(note)}</p>${blocks.join("\n")}`);
}

/** A page that only says something: that work is going on, or why there is no plan. */
export function messagePage(message: string): string {
  return page(`<p>${escaped(message).replaceAll("\n", "<br>")}</p>`);
}

interface Section {
  readonly heading: string;
  readonly lines: string[];
}

export function sections(text: string): Section[] {
  const found: Section[] = [];
  for (const line of text.trimEnd().split("\n")) {
    const current = found.at(-1);
    if (/^\S/.test(line)) {
      found.push({ heading: line, lines: [] });
    } else if (current === undefined) {
      found.push({ heading: "", lines: [line] });
    } else if (line !== "" || current.lines.length > 0) {
      current.lines.push(line);
    }
  }
  return found.map((section) => ({ ...section, lines: trimmed(section.lines) }));
}

/** Without empty lines at the end, and without the indent that every line below a heading has. */
function trimmed(lines: readonly string[]): string[] {
  const last = lines.findLastIndex((line) => line.trim() !== "");
  return lines.slice(0, last + 1).map((line) => line.replace(/^ {2}/, ""));
}

function page(body: string): string {
  const policy = "default-src 'none'; style-src 'unsafe-inline'";
  return `<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}"><style>${STYLE}</style></head><body>${body}</body></html>`;
}

export function escaped(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}
