/** Which `moedsl` to run: the setting, the opened folder's own environment, or the one on PATH. */
import * as fs from "node:fs";
import * as os from "node:os";
import * as path from "node:path";

export interface Wish {
  /** The setting `moedsl.path`; empty where it is unset. */
  readonly setting: string;
  /** The opened folder, if any. */
  readonly folder: string | undefined;
  /** Whether the person trusts that folder: programs of others are not run from it. */
  readonly trusted: boolean;
}

/** The program's path, or its bare name where PATH is to be asked. */
export function program(wish: Wish): string {
  if (wish.setting.trim() !== "") {
    return expand(wish.setting.trim(), wish.folder);
  }
  return ownProgram(wish) ?? "moedsl";
}

function ownProgram(wish: Wish): string | undefined {
  if (wish.folder === undefined || !wish.trusted) {
    return undefined;
  }
  const places = [[".venv", "bin", "moedsl"], [".venv", "Scripts", "moedsl.exe"]];
  return places.map((place) => path.join(wish.folder ?? "", ...place)).find((file) => fs.existsSync(file));
}

function expand(setting: string, folder: string | undefined): string {
  const home = setting.replace(/^~(?=$|[\\/])/, os.homedir());
  return home.replaceAll("${workspaceFolder}", folder ?? "");
}
