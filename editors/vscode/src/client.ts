/** The language server's process and the client that talks to it. */
import { ChildProcess, spawn } from "node:child_process";
import * as vscode from "vscode";
import { CloseAction, ErrorAction, LanguageClient, LanguageClientOptions, StaticFeature } from "vscode-languageclient/node";

import { Ended, explain } from "./failure";
import { program } from "./program";

/** The commands that the extension offers itself; the client must not offer the server's of the same name. */
export const OWN_COMMANDS: readonly string[] = ["moedsl.showPlan", "moedsl.showReport", "moedsl.pinAll"];

const KEPT_LINES = 20;
/** How long a server may take to end before it is killed. */
const STOP_MS = 5000;

class Client extends LanguageClient {
  protected override registerBuiltinFeatures(): void {
    this.registerFeature(withoutOwnCommands);
    super.registerBuiltinFeatures();
  }
}

const withoutOwnCommands: StaticFeature = {
  fillClientCapabilities: () => undefined,
  getState: () => ({ kind: "static" }),
  clear: () => undefined,
  initialize: (capabilities) => {
    const offered = capabilities.executeCommandProvider;
    if (offered !== undefined) {
      offered.commands = offered.commands.filter((name) => !OWN_COMMANDS.includes(name));
    }
  },
};

/** Starts and restarts the server, and says why where it does not start. */
export class Session implements vscode.Disposable {
  private client: LanguageClient | undefined;
  private run: Run | undefined;
  private turn: Promise<void> = Promise.resolve();
  private readonly output = vscode.window.createOutputChannel("moedsl");

  constructor(private readonly report: (message: string) => void) {}

  /** Starts the server, or another one after it; one request at a time. A failure is reported, not thrown. */
  restart(): Promise<void> {
    this.turn = this.turn.then(() => this.stop()).then(() => this.start());
    return this.turn;
  }

  private async start(): Promise<void> {
    const run = new Run(commandLine());
    this.run = run;
    try {
      const child = await run.open();
      this.client = new Client("moedsl", "moedsl", async () => child, this.options(run));
      await Promise.race([this.client.start(), run.early()]);
      if (!this.client.isRunning()) {
        throw new Error("the client gave up"); // start() resolves all the same
      }
    } catch {
      this.client = undefined;
      run.kill(); // one that still runs would never end
      await run.ended;
      this.report(explain(run.how()));
    }
  }

  private async stop(): Promise<void> {
    const client = this.client;
    this.client = undefined;
    try {
      if (client !== undefined && client.needsStop()) {
        await client.stop(STOP_MS);
      }
    } catch (error) {
      this.output.appendLine(`The server did not end when asked to: ${String(error)}`);
    }
    this.run?.kill();
  }

  /** What the server answers to one of its commands; throws where it does not run or refuses. */
  async ask<T>(command: string, ...args: unknown[]): Promise<T> {
    if (this.client === undefined || !this.client.isRunning()) {
      throw new Error("the language server does not run; its output channel says why");
    }
    return this.client.sendRequest<T>("workspace/executeCommand", { command, arguments: args });
  }

  showOutput(): void {
    this.output.show(true);
  }

  dispose(): void {
    void this.stop();
    this.output.dispose();
  }

  private options(run: Run): LanguageClientOptions {
    return {
      documentSelector: [{ scheme: "file", language: "moe" }, { scheme: "untitled", language: "moe" }],
      outputChannel: this.output,
      synchronize: { fileEvents: vscode.workspace.createFileSystemWatcher("**/*.moe") },
      initializationFailedHandler: () => false,
      errorHandler: {
        error: () => ({ action: ErrorAction.Continue, handled: true }),
        closed: () => this.closed(run),
      },
    };
  }

  /** An end that nobody asked for, after this server had started; start() tells of those before. */
  private closed(run: Run): { action: CloseAction; handled: boolean } {
    if (run === this.run && this.client !== undefined && this.client.isRunning()) {
      void run.ended.then(() => this.report(explain(run.how())));
      this.client = undefined;
    }
    return { action: CloseAction.DoNotRestart, handled: true };
  }
}

/** One process of the server, with how it ended. */
class Run {
  private child: ChildProcess | undefined;
  private system: string | undefined;
  private status: number | null = null;
  private said: string[] = [];
  private finish: () => void = () => undefined;
  readonly ended = new Promise<void>((resolve) => (this.finish = resolve));

  constructor(private readonly command: readonly string[]) {}

  async open(): Promise<ChildProcess> {
    const [file, ...args] = this.command;
    const child = spawn(file ?? "moedsl", args, { cwd: folder() ?? process.cwd() });
    this.child = child;
    child.stderr.on("data", (text: Buffer) => this.keep(text.toString()));
    const said = new Promise((resolve) => child.stderr.once("end", resolve));
    child.once("exit", (status) => {
      this.status = status;
      void said.then(() => this.finish()); // not "close": nobody may be left to read stdout
    });
    await new Promise<void>((resolve, reject) => {
      child.once("spawn", resolve);
      child.once("error", (error: NodeJS.ErrnoException) => {
        this.system = error.code ?? error.message;
        this.finish();
        reject(error);
      });
    });
    return child;
  }

  /** Rejects when the process ends; the client itself waits on for an answer that cannot come. */
  async early(): Promise<never> {
    await this.ended;
    throw new Error("the process ended");
  }

  /** Ends the process if it still runs. */
  kill(): void {
    this.child?.kill();
  }

  how(): Ended {
    return { command: this.command, system: this.system, status: this.status, said: this.said };
  }

  private keep(text: string): void {
    this.said = [...this.said, ...text.split("\n")].filter((line) => line !== "").slice(-KEPT_LINES);
  }
}

/** The program and its arguments, from the settings of the opened folder. */
export function commandLine(args?: readonly string[]): string[] {
  const settings = vscode.workspace.getConfiguration("moedsl");
  const wish = { setting: settings.get("path", ""), folder: folder(), trusted: vscode.workspace.isTrusted };
  return [program(wish), ...(args ?? settings.get<string[]>("server.args", ["lsp"]))];
}

function folder(): string | undefined {
  return vscode.workspace.workspaceFolders?.[0]?.uri.fsPath;
}
