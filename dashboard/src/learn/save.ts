/**
 * The laboratory as one file that works without the service: the page's own scripts and styles, and of the run on the
 * screen its curves, the step shown and how every strategy divides it.
 */
import { router } from "../lib/router.svelte";
import type { Saved } from "../lib/saved";
import { opened } from "./sweep/opened";
import { DRAWN, PREFIX, RECORDED, source, type Recording } from "./source.svelte";
import { FIXED, LARGEST, STRATEGIES } from "./strategies";

const IMPORTED = /(\bfrom|\bimport\(?)\s*(["'`])\.\/([\w.-]+\.js)\2/g;
const STYLES = /["'`]assets\/([\w.-]+\.css)["'`]/g;
const SAVED_RUN = "saved";

async function asset(name: string): Promise<string> {
  const answer = await fetch(`/assets/${name}`);
  if (!answer.ok) throw new Error(`${name} could not be read. Is the service still running?`);
  return answer.text();
}

/** The scripts that the laboratory needs, by name, and their styles. Other pages of the app are left out. */
async function parts(entry: string): Promise<{ scripts: Map<string, string>; styles: Set<string> }> {
  const [scripts, styles, left] = [new Map<string, string>(), new Set<string>(), [entry]];
  for (let name = left.pop(); name !== undefined; name = left.pop()) {
    if (scripts.has(name)) continue;
    const text = await asset(name);
    scripts.set(name, text);
    for (const [, how, , found] of text.matchAll(IMPORTED)) {
      if (name !== entry || how === "from" || found!.startsWith("SavedFile")) left.push(found!);
    }
    if (name !== entry) for (const [, found] of text.matchAll(STYLES)) styles.add(found!);
  }
  for (const [, found] of scripts.get(entry)!.matchAll(STYLES)) if (/^(SavedFile|Laboratory)/.test(found!)) styles.add(found!);
  return { scripts, styles };
}

const encoded = (text: string): string => {
  let binary = "";
  for (const byte of new TextEncoder().encode(text)) binary += String.fromCharCode(byte);
  return btoa(binary);
};
/** A script whose imports are found by the file's import map, and which loads no styles: they are in the file. */
const inlined = (text: string): string =>
  text.replace(IMPORTED, (_, how: string, quote: string, name: string) => `${how}${how === "from" || how === "import" ? " " : ""}${quote}lab/${name}${quote}`)
    .replace(/__vite__mapDeps\(\[[\d,\s]*\]\)/g, "[]");
const harmless = (value: unknown): string => JSON.stringify(value).replaceAll("<", "\\u003c");

/** The run on the screen as a recording; null if it is one that comes with the page. `told` hears how far it is. */
async function recordingOf(told: (share: number) => void): Promise<Recording | null> {
  if (source.recording || !source.curves) return null;
  const { attempts, step } = source;
  const series = Object.fromEntries(Object.entries(source.curves).filter(([name]) => DRAWN.test(name)));
  const recording: Recording = { name: SAVED_RUN, environment: "", steps: [], series, attempts: {}, groupings: {} };
  if (!attempts || step === null) return recording;
  [recording.steps, recording.attempts, recording.groupings] = [[step], { [step]: attempts }, { [step]: {} }];
  if (attempts.shown < 2) return recording;
  const wanted = Object.keys(STRATEGIES).flatMap((strategy) => Array.from({ length: FIXED.includes(strategy) ? 1 : LARGEST }, (_, n) => [strategy, n + 1] as const));
  for (const [at, [strategy, count]] of wanted.entries()) {
    told(at / wanted.length);
    try {
      (recording.groupings[step]![strategy] ??= {})[count] = await source.grouping(strategy, count);
    } catch {
      // A strategy that cannot divide this step is missing in the file too, and the view says so.
    }
  }
  return recording;
}

export async function savedFile(told: (share: number) => void): Promise<Blob> {
  const recording = await recordingOf(told);
  const entry = document.querySelector<HTMLScriptElement>('script[type="module"][src]')!.src.split("/").at(-1)!;
  const { scripts, styles } = await parts(entry);
  const shared = [...document.querySelectorAll<HTMLLinkElement>('link[rel="stylesheet"]')].map((link) => link.href.split("/").at(-1)!).filter((name) => name.startsWith("index"));
  const css = (await Promise.all([...new Set([...shared, ...styles])].map(asset))).join("\n");
  const query = new URLSearchParams(router.query);
  if (recording) query.set("run", PREFIX + SAVED_RUN);
  const about: Saved = {
    address: `${router.path}${query.size ? `?${query}` : ""}`, when: new Date().toISOString().slice(0, 10), recording,
    title: recording ? source.run : RECORDED.find((one) => PREFIX + one.name === source.run)?.title ?? source.run, sweep: opened.sweep,
  };
  const imports = Object.fromEntries([...scripts].map(([name, text]) => [`lab/${name}`, `data:text/javascript;base64,${encoded(inlined(text))}`]));
  const policy = "default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'; img-src data:";
  return new Blob([
    `<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">`,
    `<meta name="color-scheme" content="light dark"><meta http-equiv="Content-Security-Policy" content="${policy}"><link rel="icon" href="data:,"><title>The laboratory · Groupwise</title>\n`,
    `<style>${css.replaceAll("</style", "<\\/style")}</style>\n<script type="importmap">${harmless({ imports })}</script>\n<script type="application/json" id="saved">${harmless(about)}</script></head>\n`,
    `<body><div id="page"></div><noscript>This file needs JavaScript.</noscript><script type="module">import "lab/${entry}";</script></body></html>\n`,
  ], { type: "text/html" });
}
