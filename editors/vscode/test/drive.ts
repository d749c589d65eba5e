/** Drives a VS Code that is served on this machine, in headless Chromium: `node drive.js suite|use URL FOLDER`. */
import { chromium } from "playwright-core";

import { runSuite } from "./drive_suite";
import { use } from "./drive_use";

const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

async function main(): Promise<void> {
  const [, , what, url, folder] = process.argv;
  const browser = await chromium.launch({ executablePath: process.env["CHROMIUM"] ?? "/usr/bin/chromium", args: FLAGS });
  try {
    const page = await browser.newPage({ viewport: { width: 1000, height: 480 } });
    await (what === "suite" ? runSuite : use)(page, url ?? "", folder ?? "");
  } finally {
    await browser.close();
  }
}

main().catch((error: unknown) => {
  console.error(error);
  process.exitCode = 1;
});
