/** Uses the extension as a person does, says what it misses, and keeps a picture of each scene. */
import * as fs from "node:fs";
import * as path from "node:path";
import { errors, type Page } from "playwright-core";

const SHOTS = process.env["MOEDSL_SHOTS"] ?? ".";

/** How long a thing may take to appear before it counts as missing. */
const PATIENCE_MS = 120_000;

/** How long a person waits before pressing a key again that did nothing. */
const AGAIN_MS = 10_000;

interface Scene {
  readonly file: string;
  /** Height of the window, which is 1000 wide. */
  readonly height: number;
  readonly text: string;
  /** Up to the picture. */
  readonly play: (page: Page) => Promise<void>;
  /** What comes after it. */
  readonly further?: (page: Page) => Promise<void>;
}

const SCENES: readonly Scene[] = [
  {
    file: "problem.moe",
    height: 300,
    text: "model qwen3_235b_a22\ngb200 x 256\nseq 128k\nfit first\npin tp=3 disptcher=alltoall\n",
    play: async (page) => {
      await page.waitForSelector(".squiggly-error");
      await page.keyboard.press("F8");
      await page.waitForSelector(".marker-widget");
    },
    further: async (page) => {
      await page.keyboard.press("Escape");
      await page.waitForSelector(".marker-widget", { state: "detached" });
      await pressUntil(page, "Control+.", ".action-widget >> text=qwen3_235b_a22b");
      await page.keyboard.press("Enter");
      await page.waitForSelector(".view-line >> text=qwen3_235b_a22b");
    },
  },
  {
    file: "hints.moe",
    height: 240,
    text: "model qwen3_235b_a22b\ngb200 x 256\nseq 128k\nfit first\n",
    play: async (page) => {
      await page.waitForSelector("text=/ep=\\d+/");
      await page.waitForSelector(".codelens-decoration >> text=/a step/");
    },
  },
  {
    file: "completion.moe",
    height: 400,
    text: "model qwen3_235b_a22b\ngb200 x 256\nseq 128k\nfit first\n\npin tp=2 cp=8 ",
    play: async (page) => {
      await page.keyboard.press("Control+End");
      await page.keyboard.type("ep=");
      await page.keyboard.press("Control+Space");
      await page.waitForSelector(".suggest-widget.visible .monaco-list-row >> text=32");
    },
  },
  {
    file: "plan.moe",
    height: 620,
    text: "model qwen3_235b_a22b\ngb200 x 256\nseq 128k\nfit first\n",
    play: async (page) => {
      await page.waitForSelector("text=/ep=\\d+/");
      await page.keyboard.press("Control+k");
      await page.keyboard.press("p");
      await page.frameLocator("iframe.webview").frameLocator("iframe#active-frame").locator("text=Meshes").first().waitFor();
    },
    further: async (page) => {
      await page.keyboard.press("Control+1");
      await page.keyboard.press("Control+End");
      await page.keyboard.type("pin cp=8");
      await page.keyboard.press("Control+s");
      await page.frameLocator("iframe.webview").frameLocator("iframe#active-frame").locator("text=/cp 8 /").first().waitFor();
    },
  },
];

/** Every scene in a window of its own, at the files that it wrote. */
export async function use(page: Page, url: string, folder: string): Promise<void> {
  for (const scene of SCENES) {
    fs.writeFileSync(path.join(folder, scene.file), scene.text);
  }
  page.setDefaultTimeout(PATIENCE_MS);
  await page.goto(`${url}/?folder=${folder}`);
  await page.waitForSelector(".explorer-viewlet >> text=plan.moe");
  await page.keyboard.press("Control+b");
  for (const scene of SCENES) {
    try {
      await show(page, scene);
    } catch (error) {
      console.error(`${scene.file}, with this in the window:\n${await page.innerText("body")}`);
      throw error;
    }
  }
}

async function show(page: Page, scene: Scene): Promise<void> {
  await page.setViewportSize({ width: 1000, height: scene.height });
  await openFile(page, scene.file);
  await scene.play(page);
  await page.mouse.move(600, scene.height - 30);
  await page.waitForTimeout(500); // what moves has come to rest
  await page.screenshot({ path: path.join(SHOTS, `vscode_${path.basename(scene.file, ".moe")}.png`) });
  await scene.further?.(page);
  await closeAll(page);
}

/** Presses keys, or a chord of keys, again if nothing came of them: VS Code drops one that it gets while the focus moves. */
async function pressUntil(page: Page, keys: string, appears: string): Promise<void> {
  for (let waited = AGAIN_MS; waited < PATIENCE_MS; waited += AGAIN_MS) {
    for (const key of keys.split(" ")) {
      await page.keyboard.press(key);
    }
    try {
      await page.waitForSelector(appears, { timeout: AGAIN_MS });
      return;
    } catch (error) {
      if (!(error instanceof errors.TimeoutError)) {
        throw error;
      }
    }
  }
  throw new Error(`${keys} does not lead to ${appears}`);
}

async function openFile(page: Page, name: string): Promise<void> {
  await pressUntil(page, "Control+p", ".quick-input-widget:visible");
  await page.keyboard.type(name);
  await page.waitForSelector(`.quick-input-list .monaco-list-row.focused >> text=${name}`);
  await page.keyboard.press("Enter");
  await page.waitForSelector(`.tab.active >> text=${name}`);
  await page.waitForSelector(".monaco-editor.focused .view-line");
}

/** Closes every tab, and saves nothing that VS Code has not yet saved by itself: then it asks. */
async function closeAll(page: Page): Promise<void> {
  const closed = ".part.editor:not(:has(.tab))";
  const discard = '.monaco-dialog-box .monaco-button:text-matches("Don.t Save")';
  await page.keyboard.press("Escape");
  await pressUntil(page, "Control+k Control+w", `${closed}, ${discard}`);
  if (await page.isVisible(discard)) {
    await page.click(discard);
    await page.waitForSelector(closed);
  }
}
