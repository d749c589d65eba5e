/** A panel next to the file, filled by the language server: the plan as text, or the report as a page. */
import * as vscode from "vscode";

import { Session } from "./client";
import { messagePage, planPage } from "./page";

/** What the server answers to moedsl.showPlan and moedsl.showReport. */
export interface Answer {
  /** The plan in words, or what stands in its way. */
  readonly text?: string | null;
  /** A whole HTML page, for the report. */
  readonly html?: string | null;
}

const NOTE = "Updated when the file is saved.";

export class Panel implements vscode.Disposable {
  private view: vscode.WebviewPanel | undefined;
  private uri: vscode.Uri | undefined;
  private run: string | undefined;
  private asked = 0;

  constructor(
    private readonly session: Session,
    private readonly command: "moedsl.showPlan" | "moedsl.showReport",
    private readonly title: string,
  ) {}

  /** Opens the panel for `uri`, or turns the open one to it; for one run of the file where `run` names it. */
  async show(uri: vscode.Uri, run?: string): Promise<void> {
    this.uri = uri;
    this.run = run;
    if (this.view === undefined) {
      this.view = this.open();
    } else {
      this.view.reveal(undefined, true);
    }
    await this.refresh();
  }

  /** After a save: the updated plan, if it is this file's. */
  async saved(document: vscode.TextDocument): Promise<void> {
    const wanted = vscode.workspace.getConfiguration("moedsl").get("plan.updateOnSave", true);
    if (wanted && this.view !== undefined && document.uri.toString() === this.uri?.toString()) {
      await this.refresh();
    }
  }

  /** The page as it stands; undefined where the panel is closed. */
  html(): string | undefined {
    return this.view?.webview.html;
  }

  dispose(): void {
    this.view?.dispose();
  }

  private open(): vscode.WebviewPanel {
    const where = { viewColumn: vscode.ViewColumn.Beside, preserveFocus: true };
    const options = { enableFindWidget: true, enableScripts: false };
    const view = vscode.window.createWebviewPanel(this.command, this.title, where, options);
    view.webview.html = messagePage("Working the plan out ...");
    view.onDidDispose(() => (this.view = undefined));
    return view;
  }

  private async refresh(): Promise<void> {
    const uri = this.uri;
    if (uri === undefined || this.view === undefined) {
      return;
    }
    const turn = ++this.asked;
    const html = await this.ask(uri);
    if (this.view !== undefined && turn === this.asked) {
      this.view.title = `${this.title}: ${uri.path.split("/").at(-1) ?? ""}`;
      this.view.webview.html = html;
    }
  }

  private async ask(uri: vscode.Uri): Promise<string> {
    try {
      const answer = await this.session.ask<Answer | null>(this.command, uri.toString(), this.run ?? null);
      return answer?.html ?? planPage(answer?.text ?? "No plan: the file is not open.", NOTE);
    } catch (error) {
      return messagePage(`No plan: ${error instanceof Error ? error.message : String(error)}`);
    }
  }
}
