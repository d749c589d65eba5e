/** What the extension gives inside a real VS Code, against the real language server. Runs in the extension host. */
import * as assert from "node:assert/strict";
import * as fs from "node:fs";
import * as vscode from "vscode";

import type { Api } from "../src/extension";
import { at, eventually, opened, replaced, runAll, test } from "./harness";

const GOOD = "model qwen3_30b_a3b\nh100 x 16\nseq 4k\nfit first\n";
const MISSPELT = "model qwen3_30b_a3\nh100 x 16\nseq 4k\n";

async function api(): Promise<Api> {
  const extension = vscode.extensions.getExtension<Api>("moedsl.moedsl");
  assert.ok(extension, "the extension is not installed");
  return extension.activate();
}

function ask<T>(command: string, ...args: unknown[]): () => Thenable<T> {
  return () => vscode.commands.executeCommand<T>(command, ...args);
}

test("diagnostics", async () => {
  const document = await opened("misspelt.moe", MISSPELT);
  const found = await eventually("a diagnostic", () => vscode.languages.getDiagnostics(document.uri), (d) => d.length > 0);
  assert.match(found[0]?.message ?? "", /qwen3_30b_a3/);
  assert.equal(found[0]?.severity, vscode.DiagnosticSeverity.Error);
  assert.equal(document.getText(found[0]?.range), "qwen3_30b_a3");
});

test("diagnostics follow an edit", async () => {
  const document = await opened("edited.moe", GOOD);
  await replaced(document, GOOD.replace("seq", "sequ"));
  await eventually("an error", () => vscode.languages.getDiagnostics(document.uri), (d) => d.some((one) => one.severity === 0));
  await replaced(document, GOOD);
  await eventually("no error", () => vscode.languages.getDiagnostics(document.uri), (d) => d.every((one) => one.severity !== 0));
});

test("quick fix", async () => {
  const document = await opened("fixed.moe", MISSPELT);
  const place = at(document, "qwen3_30b_a3");
  const actions = await eventually(
    "a quick fix",
    ask<vscode.CodeAction[]>("vscode.executeCodeActionProvider", document.uri, new vscode.Range(place, place)),
    (found) => found.some((action) => action.edit !== undefined && /qwen3_30b_a3b/.test(action.title)),
  );
  const fix = actions.find((action) => /qwen3_30b_a3b/.test(action.title));
  assert.ok(fix?.edit);
  await vscode.workspace.applyEdit(fix.edit);
  assert.match(document.getText(), /qwen3_30b_a3b\n/);
});

test("hover", async () => {
  const document = await opened("hover.moe", GOOD);
  const place = at(document, "qwen3_30b_a3b");
  const hovers = await eventually("a hover", ask<vscode.Hover[]>("vscode.executeHoverProvider", document.uri, place), (h) => h.length > 0);
  const text = hovers.flatMap((hover) => hover.contents.map((part) => (typeof part === "string" ? part : part.value))).join("\n");
  assert.match(text, /128/, "the model has 128 experts");
});

test("completion", async () => {
  const document = await opened("complete.moe", "model \nh100 x 16\n");
  await eventually(
    "the model in completion",
    async () => {
      const list = await ask<vscode.CompletionList>("vscode.executeCompletionItemProvider", document.uri, new vscode.Position(0, 6))();
      return list.items.map((item) => (typeof item.label === "string" ? item.label : item.label.label));
    },
    (labels) => labels.includes("qwen3_235b_a22b"),
  );
});

test("inlay hints", async () => {
  const document = await opened("hints.moe", GOOD);
  const whole = new vscode.Range(new vscode.Position(0, 0), document.lineAt(document.lineCount - 1).range.end);
  const hints = await eventually("hints", ask<vscode.InlayHint[]>("vscode.executeInlayHintProvider", document.uri, whole), (h) => h.length > 0);
  const text = hints.map((hint) => (typeof hint.label === "string" ? hint.label : hint.label.map((part) => part.value).join(""))).join(" ");
  assert.match(text, /ep=\d+/);
});

test("definition", async () => {
  const document = await opened("definition.moe", GOOD);
  const places = await eventually(
    "a definition",
    ask<(vscode.Location | vscode.LocationLink)[]>("vscode.executeDefinitionProvider", document.uri, at(document, "qwen3_30b_a3b")),
    (found) => found.length > 0,
  );
  const first = places[0];
  assert.ok(first);
  const uri = "uri" in first ? first.uri : first.targetUri;
  const range = "uri" in first ? first.range : first.targetRange;
  const target = await vscode.workspace.openTextDocument(uri);
  assert.match(target.lineAt(range.start.line).text, /^model qwen3_30b_a3b/);
});

test("references and rename", async () => {
  const text = "rules house {\n  let room = 2\n}\nqwen3_30b_a3b; h100 x 16\nrequire spare: dp >= room\n";
  const document = await opened("rename.moe", text);
  const place = at(document, "room");
  await eventually("references", ask<vscode.Location[]>("vscode.executeReferenceProvider", document.uri, place), (r) => r.length === 2);
  const edit = await vscode.commands.executeCommand<vscode.WorkspaceEdit>("vscode.executeDocumentRenameProvider", document.uri, place, "slack");
  await vscode.workspace.applyEdit(edit);
  assert.equal(document.getText(), text.replaceAll("room", "slack"));
});

test("symbols and folding", async () => {
  const text = "run a {\n  qwen3_30b_a3b\n  h100 x 16\n}\nrun b from a {\n  seq 8k\n}\n";
  const document = await opened("symbols.moe", text);
  const symbols = await eventually("symbols", ask<vscode.DocumentSymbol[]>("vscode.executeDocumentSymbolProvider", document.uri), (s) => s?.length > 0);
  assert.deepEqual(symbols.map((symbol) => symbol.name).filter((name) => /\b[ab]\b/.test(name)).length, 2);
  const folds = await vscode.commands.executeCommand<vscode.FoldingRange[]>("vscode.executeFoldingRangeProvider", document.uri);
  assert.ok(folds.some((fold) => fold.start === 0));
});

test("format", async () => {
  const document = await opened("format.moe", "model   qwen3_30b_a3b\nh100   x  16\npin tp = 1\n");
  const edits = await eventually(
    "an edit",
    ask<vscode.TextEdit[]>("vscode.executeFormatDocumentProvider", document.uri, { tabSize: 2, insertSpaces: true }),
    (found) => (found?.length ?? 0) > 0,
  );
  const edit = new vscode.WorkspaceEdit();
  edit.set(document.uri, edits);
  await vscode.workspace.applyEdit(edit);
  assert.equal(document.getText(), "model qwen3_30b_a3b\nh100 x 16\npin tp=1\n");
});

test("semantic tokens", async () => {
  const document = await opened("tokens.moe", GOOD);
  const tokens = await eventually("tokens", ask<vscode.SemanticTokens>("vscode.provideDocumentSemanticTokens", document.uri), (t) => (t?.data.length ?? 0) > 0);
  assert.equal(tokens.data.length % 5, 0);
  const legend = await vscode.commands.executeCommand<vscode.SemanticTokensLegend>("vscode.provideDocumentSemanticTokensLegend", document.uri);
  assert.ok(legend.tokenTypes.includes("keyword") || legend.tokenTypes.length > 0);
});

test("code lens", async () => {
  const document = await opened("lens.moe", GOOD);
  const lenses = await eventually("lenses", ask<vscode.CodeLens[]>("vscode.executeCodeLensProvider", document.uri, 10), (l) => l.length > 0);
  assert.ok(lenses.some((lens) => lens.command?.command === "moedsl.showPlan"), JSON.stringify(lenses));
});

test("a lens opens the plan next to the file", async () => {
  const document = await opened("lens_plan.moe", GOOD);
  const lenses = await eventually("lenses", ask<vscode.CodeLens[]>("vscode.executeCodeLensProvider", document.uri, 10), (l) => l.length > 0);
  const lens = lenses.find((one) => one.command?.command === "moedsl.showPlan");
  await vscode.commands.executeCommand("moedsl.showPlan", ...(lens?.command?.arguments ?? []));
  assert.match((await api()).plan.html() ?? "", /qwen3_30b_a3b on 16 h100/);
});

test("the plan panel follows saves", async () => {
  const { plan } = await api();
  const document = await opened("panel.moe", GOOD);
  await vscode.commands.executeCommand("moedsl.showPlan");
  assert.match(plan.html() ?? "", /Meshes/);
  assert.ok(vscode.window.tabGroups.all.length > 1, "the panel is next to the file");
  await vscode.window.showTextDocument(document, vscode.ViewColumn.One);
  await replaced(document, GOOD.replace("x 16", "x 32"));
  await document.save();
  await eventually("the new plan", () => plan.html() ?? "", (html) => /qwen3_30b_a3b on 32 h100/.test(html));
  await vscode.commands.executeCommand("workbench.action.closeAllEditors");
});

test("the report opens as a page", async () => {
  const { report } = await api();
  await opened("report.moe", GOOD);
  await vscode.commands.executeCommand("moedsl.showReport");
  assert.match(report.html() ?? "", /Memory by stage/);
  await vscode.commands.executeCommand("workbench.action.closeAllEditors");
});

test("pin everything", async () => {
  const document = await opened("pinned.moe", GOOD);
  await eventually("the plan", ask<vscode.CodeLens[]>("vscode.executeCodeLensProvider", document.uri, 10), (l) => l.length > 0);
  await vscode.commands.executeCommand("moedsl.pinAll");
  await eventually("pins", () => document.getText(), (text) => /^pin .*\bep=\d+/m.test(text));
  await document.save();
});

function programSet(): string {
  return vscode.workspace.getConfiguration("moedsl").get("path", "");
}

/** The setting before any test changed it: between two changes VS Code may read an older file once more. */
const usual = programSet();

async function setProgram(path: string): Promise<void> {
  await vscode.workspace.getConfiguration("moedsl").update("path", path, vscode.ConfigurationTarget.Global);
  await eventually("the setting", programSet, (set) => set === path);
}

/** The last message of the extension when its program is another. */
async function messageWith(path: string, expected: RegExp): Promise<void> {
  const { messages } = await api();
  await setProgram(path);
  try {
    await eventually("the message", () => messages.at(-1) ?? "", (message) => expected.test(message));
  } finally {
    await setProgram(usual);
  }
}

test("a missing program has a suggested fix", async () => {
  await messageWith("/nowhere/moedsl", /no program "\/nowhere\/moedsl".*pip install 'moedsl\[lsp\]'/);
});

test("a missing pygls has a suggested fix", async () => {
  await messageWith(process.env["MOEDSL_WITHOUT_PYGLS"] ?? "", /lacks what the language server needs.*moedsl\[lsp\]/);
});

test("restart brings it back", async () => {
  await vscode.commands.executeCommand("moedsl.restartServer");
  const document = await opened("again.moe", MISSPELT);
  const { messages } = await api();
  await eventually(
    "a diagnostic",
    () => ({ found: vscode.languages.getDiagnostics(document.uri), program: programSet(), said: messages.at(-1) }),
    ({ found }) => found.length > 0,
  );
});

/** VS Code calls this; the results go where the environment says. */
export async function run(): Promise<void> {
  await api();
  const results = await runAll();
  fs.writeFileSync(process.env["MOEDSL_RESULTS"] ?? "", JSON.stringify(results));
}
