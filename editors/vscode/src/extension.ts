/** The extension's commands, over the language server `moedsl lsp`. */
import * as path from "node:path";
import * as vscode from "vscode";

import { commandLine, Session } from "./client";
import { INSTALL_COMMAND } from "./failure";
import { Panel } from "./panel";

const FIRST_FILE = ["model qwen3_30b_a3b", "h100 x 16", "seq 4k", "fit first", ""].join("\n");

/** What tests ask of a running extension. */
export interface Api {
  readonly plan: Panel;
  readonly report: Panel;
  readonly messages: readonly string[];
}

export async function activate(context: vscode.ExtensionContext): Promise<Api> {
  const messages: string[] = [];
  const session = new Session((message) => {
    messages.push(message);
    void wayOut(session, message);
  });
  const plan = new Panel(session, "moedsl.showPlan", "Plan");
  const report = new Panel(session, "moedsl.showReport", "Report");
  const command = (name: string, run: (...args: unknown[]) => unknown) => vscode.commands.registerCommand(name, run);
  context.subscriptions.push(
    session,
    plan,
    report,
    command("moedsl.showPlan", (uri, run) => forFile(uri, (file) => plan.show(file, named(run)))),
    command("moedsl.showReport", (uri, run) => forFile(uri, (file) => report.show(file, named(run)))),
    command("moedsl.pinAll", (uri) => forFile(uri, (file) => session.ask("moedsl.pinAll", file.toString()))),
    command("moedsl.compile", (uri) => forFile(uri, compile)),
    command("moedsl.newFile", newFile),
    command("moedsl.restartServer", () => session.restart()),
    vscode.workspace.onDidSaveTextDocument((document) => plan.saved(document)),
    vscode.workspace.onDidSaveTextDocument((document) => report.saved(document)),
    vscode.workspace.onDidChangeConfiguration((change) => {
      if (change.affectsConfiguration("moedsl.path") || change.affectsConfiguration("moedsl.server")) {
        void session.restart();
      }
    }),
  );
  await session.restart();
  return { plan, report, messages };
}

/** Runs `act` on the file that was given, or the one in front; says so where there is none. */
async function forFile(given: unknown, act: (uri: vscode.Uri) => unknown): Promise<void> {
  const front = vscode.window.activeTextEditor?.document;
  const uri = asUri(given) ?? (front?.languageId === "moe" ? front.uri : undefined);
  if (uri === undefined) {
    void vscode.window.showInformationMessage("moedsl: open a .moe file first.");
    return;
  }
  try {
    await act(uri);
  } catch (error) {
    void vscode.window.showErrorMessage(`moedsl: ${error instanceof Error ? error.message : String(error)}`);
  }
}

function asUri(given: unknown): vscode.Uri | undefined {
  if (given instanceof vscode.Uri) {
    return given;
  }
  return typeof given === "string" ? vscode.Uri.parse(given) : undefined;
}

/** A code lens names its run; a menu hands over other things in its place. */
function named(run: unknown): string | undefined {
  return typeof run === "string" ? run : undefined;
}

async function newFile(): Promise<void> {
  const document = await vscode.workspace.openTextDocument({ language: "moe", content: FIRST_FILE });
  await vscode.window.showTextDocument(document);
}

/** `moedsl compile FILE -o out/NAME` as a task, so that its output stays readable. */
async function compile(uri: vscode.Uri): Promise<void> {
  const name = path.basename(uri.fsPath, ".moe");
  const [file, ...args] = commandLine(["compile", uri.fsPath, "-o", path.join("out", name)]);
  const scope = vscode.workspace.getWorkspaceFolder(uri) ?? vscode.TaskScope.Workspace;
  const run = new vscode.ProcessExecution(file ?? "moedsl", args, { cwd: path.dirname(uri.fsPath) });
  await vscode.tasks.executeTask(new vscode.Task({ type: "moedsl", file: uri.fsPath }, scope, name, "moedsl", run));
}

/** The message with what can be done about it. */
async function wayOut(session: Session, message: string): Promise<void> {
  const [copy, settings, output] = ["Copy the install command", "Open the settings", "Show the output"];
  const chosen = await vscode.window.showErrorMessage(message, copy, settings, output);
  if (chosen === copy) {
    await vscode.env.clipboard.writeText(INSTALL_COMMAND);
  } else if (chosen === settings) {
    await vscode.commands.executeCommand("workbench.action.openSettings", "moedsl.path");
  } else if (chosen === output) {
    session.showOutput();
  }
}
