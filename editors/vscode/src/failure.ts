/** What to tell a person whose language server does not start. */

export interface Ended {
  /** The words that were run. */
  readonly command: readonly string[];
  /** The system's own error code, where the program could not be run at all. */
  readonly system: string | undefined;
  /** The exit status, where it ran. */
  readonly status: number | null;
  /** The last lines that it wrote to stderr. */
  readonly said: readonly string[];
}

/** One sentence with the cause and one with the fix. */
export function explain(ended: Ended): string {
  const program = ended.command[0] ?? "moedsl";
  if (ended.system === "ENOENT") {
    return `moedsl: there is no program ${quoted(program)}. ${INSTALL}, or set moedsl.path to where it lies.`;
  }
  if (ended.system !== undefined) {
    return `moedsl: ${quoted(program)} cannot be run (${ended.system}). Set moedsl.path to another.`;
  }
  if (ended.said.some((line) => /pygls|lsprotocol/.test(line))) {
    return `moedsl: ${quoted(program)} lacks what the language server needs. ${INSTALL} into its environment.`;
  }
  const last = ended.said.filter((line) => line.trim() !== "").at(-1) ?? "it printed nothing";
  return `moedsl: ${quoted(ended.command.join(" "))} ended with status ${ended.status ?? "unknown"}: ${last}`;
}

export const INSTALL_COMMAND = "pip install 'moedsl[lsp]'";
const INSTALL = `Install it with ${INSTALL_COMMAND}`;

function quoted(text: string): string {
  return `"${text}"`;
}
