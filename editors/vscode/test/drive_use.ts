/** Uses the extension as a person does, and writes down what the window shows. */
import type { Page } from "playwright-core";

export async function use(page: Page, url: string, folder: string): Promise<void> {
  await page.goto(`${url}/?folder=${folder}`);
  await page.waitForSelector(".monaco-workbench");
}
