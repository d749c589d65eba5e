/** Opens a window that runs the tests of the extension host, and waits for their results. */
import * as fs from "node:fs";
import type { Page } from "playwright-core";

export async function runSuite(page: Page, url: string, folder: string): Promise<void> {
  const host = new URL(url).host;
  const remote = (path: string | undefined): string => `vscode-remote://${host}${path ?? ""}`;
  const payload = [
    ["extensionDevelopmentPath", remote(process.env["MOEDSL_TEST_EXTENSION"])],
    ["extensionTestsPath", remote(process.env["MOEDSL_TEST_SUITE"])],
  ];
  await page.goto(`${url}/?folder=${folder}&payload=${encodeURIComponent(JSON.stringify(payload))}`);
  const results = process.env["MOEDSL_RESULTS"] ?? "";
  while (!fs.existsSync(results)) {
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}
