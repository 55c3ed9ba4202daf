// Notes beside the bundle which source it was built from; tests/service/test_page.py works out the same.
import { createHash } from "node:crypto";
import { readFileSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const files = (path) =>
  statSync(path).isDirectory() ? readdirSync(path).flatMap((name) => files(join(path, name))) : [path];
const parts = ["index.html", "package-lock.json", "package.json", "public", "src", "svelte.config.js", "tsconfig.json", "vite.config.ts"];
const hash = createHash("sha256");
for (const file of parts.flatMap(files).map((path) => path.replaceAll("\\", "/")).sort()) {
  hash.update(`${file}\0`).update(readFileSync(file)).update("\0");
}
writeFileSync("../src/groupwise/service/dashboard/source.sha256", `${hash.digest("hex")}\n`);
