import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

/** A service to talk to while developing: `GROUPWISE_SERVICE=http://127.0.0.1:8001 npm run dev`. */
const service = process.env.GROUPWISE_SERVICE ?? "http://127.0.0.1:8001";

export default defineConfig({
  plugins: [svelte()],
  build: {
    outDir: "../src/groupwise/service/dashboard",
    emptyOutDir: true,
    target: "es2022",
    chunkSizeWarningLimit: 800,
    modulePreload: { polyfill: false },
    rolldownOptions: {
      // The laboratory's mathematics is a file of its own with named exports, so that tests call what the page calls.
      input: { index: "index.html", mathematics: "src/learn/mathematics/index.ts" },
      preserveEntrySignatures: "exports-only",
    },
  },
  server: {
    proxy: { "/api": service, "/v1": service, "/metrics": service, "/ws": { target: service, ws: true } },
  },
});
