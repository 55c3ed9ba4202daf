// Writes src/lib/shapes.ts, the service's shapes, from its OpenAPI document. PYTHON must know groupwise[service].
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import openapiTS, { astToString } from "openapi-typescript";

const asking = `
import json
from groupwise.service.app import create_app
from groupwise.service.settings import ServiceSettings
print(json.dumps(create_app(ServiceSettings()).openapi()))`;
const text = execFileSync(process.env.PYTHON ?? "python3", ["-c", asking], { maxBuffer: 1 << 26 });
const { components, ...document } = JSON.parse(text);
const shapes = await openapiTS({ ...document, paths: {}, components: { schemas: components.schemas } });
const head = "// Made from the service's OpenAPI document by `npm run types`; do not edit.\n\n";
writeFileSync("src/lib/shapes.ts", head + astToString(shapes));
