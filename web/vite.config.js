// Builds the page into the Python package. The same sources give the same build, and
// `sources.txt` has the sum of all that it was made of: a test compares it with the sources.
import { createHash } from "node:crypto";
import { readFileSync, readdirSync, statSync } from "node:fs";
import { join, relative, sep } from "node:path";
import { defineConfig } from "vite";

const here = import.meta.dirname;
const LEFT_OUT = new Set(["node_modules", ".vite"]);

function files(folder) {
  return readdirSync(folder)
    .filter((name) => !LEFT_OUT.has(name))
    .flatMap((name) => {
      const path = join(folder, name);
      return statSync(path).isDirectory() ? files(path) : [path];
    });
}

/** One sum over every source and the lock file: name, length and content of each, in order. */
function sumOfSources() {
  const sum = createHash("sha256");
  const named = files(here).map((path) => [relative(here, path).split(sep).join("/"), path]);
  named.sort(([a], [b]) => (a < b ? -1 : 1));
  for (const [name, path] of named) {
    const content = readFileSync(path);
    sum.update(`${name}\n${content.length}\n`);
    sum.update(content);
  }
  return sum.digest("hex");
}

const recordSources = {
  name: "record-sources",
  generateBundle() {
    this.emitFile({ type: "asset", fileName: "sources.txt", source: sumOfSources() + "\n" });
  },
};

export default defineConfig({
  root: here,
  base: "/static/",
  plugins: [recordSources],
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: join(here, "../src/holdfast/web/static"),
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    assetsInlineLimit: 0,
    reportCompressedSize: false,
    rolldownOptions: {
      output: {
        entryFileNames: "assets/[name]-[hash].js",
        chunkFileNames: "assets/[name]-[hash].js",
        assetFileNames: "assets/[name]-[hash][extname]",
      },
    },
  },
});
