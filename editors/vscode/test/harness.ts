/** A small runner for tests inside the extension host: each test's result goes into one JSON file. */
import * as fs from "node:fs";
import * as path from "node:path";
import * as vscode from "vscode";

export interface Result {
  readonly name: string;
  readonly error: string | null;
}

const tests = new Map<string, () => Promise<void>>();

export function test(name: string, body: () => Promise<void>): void {
  tests.set(name, body);
}

export async function runAll(): Promise<Result[]> {
  const results: Result[] = [];
  for (const [name, body] of tests) {
    results.push({ name, error: await outcome(body) });
  }
  return results;
}

async function outcome(body: () => Promise<void>): Promise<string | null> {
  try {
    await body();
    return null;
  } catch (error) {
    return error instanceof Error ? (error.stack ?? error.message) : String(error);
  }
}

/** The first answer of `ask` that `enough` accepts; the last one is shown where none comes in a minute. */
export async function eventually<T>(what: string, ask: () => T | Thenable<T>, enough: (value: T) => boolean): Promise<T> {
  const end = Date.now() + 60_000;
  for (;;) {
    const value = await ask();
    if (enough(value)) {
      return value;
    }
    if (Date.now() > end) {
      throw new Error(`${what} did not come; last seen: ${JSON.stringify(value)?.slice(0, 600)}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** A new file of the workspace with that text, open in an editor. */
export async function opened(name: string, text: string): Promise<vscode.TextDocument> {
  const folder = vscode.workspace.workspaceFolders?.[0]?.uri.fsPath ?? "";
  const file = path.join(folder, name);
  fs.writeFileSync(file, text);
  const document = await vscode.workspace.openTextDocument(vscode.Uri.file(file));
  await vscode.window.showTextDocument(document);
  return document;
}

/** Where `words` begins in the document. */
export function at(document: vscode.TextDocument, words: string, further = 1): vscode.Position {
  const offset = document.getText().indexOf(words);
  if (offset < 0) {
    throw new Error(`no ${words} in ${document.getText()}`);
  }
  return document.positionAt(offset + further);
}

export async function replaced(document: vscode.TextDocument, text: string): Promise<void> {
  const edit = new vscode.WorkspaceEdit();
  const end = document.lineAt(document.lineCount - 1).range.end;
  edit.replace(document.uri, new vscode.Range(new vscode.Position(0, 0), end), text);
  await vscode.workspace.applyEdit(edit);
}
