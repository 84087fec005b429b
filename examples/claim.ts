// SPDX-License-Identifier: Apache-2.0
// Claims a vGPU, prints the path that QEMU wants, waits for Enter, and gives the vGPU back. Each request
// and answer is held against types that openapi-typescript makes from the OpenAPI document:
//
//   npx openapi-typescript docs/openapi.json -o examples/berth.d.ts
//   npx tsc --strict --module nodenext --target es2022 --types node --outDir build examples/claim.ts
//   node build/claim.js vm1 L40S-4Q
import * as http from "node:http";
import type { components, paths } from "./berth.js";

type Problem = components["schemas"]["Problem"];
type Answers<O> = O extends { responses: infer R } ? R : never;
/** JSON of the good answers of an operation; undefined for one without a body. */
type Good<O> = {
	[S in keyof Answers<O>]: S extends 200 | 201 | 202
		? Answers<O>[S] extends { content: { "application/json": infer J } } ? J : undefined
		: S extends 204 ? undefined : never;
}[keyof Answers<O>];
type Body<O> = O extends { requestBody: { content: { "application/json": infer J } } } ? J : undefined;

class Refused extends Error {
	constructor(readonly problem: Problem) {
		super(`${problem.status} ${problem.code}: ${problem.title}: ${problem.detail ?? ""}`);
	}
}

/** One request; `names` fill what is in braces in the path. */
function ask<P extends keyof paths, M extends keyof paths[P] & string>(
	path: P, method: M, names: Record<string, string>, body: Body<paths[P][M]>,
): Promise<Good<paths[P][M]>> {
	const filled = path.replace(/\{(\w+)\}/g, (_, key) => encodeURIComponent(names[key] ?? ""));
	const options = {
		socketPath: process.env.BERTH_SOCKET ?? "/run/berth/berthd.sock",
		path: filled,
		method: method.toUpperCase(),
	};
	return new Promise((resolve, reject) => {
		const request = http.request(options, async (response) => {
			let text = "";
			for await (const chunk of response)
				text += chunk;
			const answer = text ? JSON.parse(text) : undefined;
			if ((response.statusCode ?? 0) < 300)
				resolve(answer);
			else
				reject(new Refused(answer as Problem));
		});
		request.on("error", (e) => reject(new Error(`berthd cannot be reached: ${e.message}`)));
		request.end(body === undefined ? undefined : JSON.stringify(body));
	});
}

async function main(name: string, profile: string): Promise<void> {
	const claim = await ask("/claims/{name}", "put", { name }, { profile });
	console.log(claim.sysfs_path);
	await new Promise((resolve) => process.stdin.once("data", resolve).once("end", resolve)); // the VM runs here
	process.stdin.destroy();
	await ask("/claims/{name}", "delete", { name }, undefined);
}

const [name, profile] = process.argv.slice(2);
if (name === undefined || profile === undefined) {
	console.error("usage: claim.js NAME PROFILE");
	process.exitCode = 2;
} else {
	main(name, profile).catch((e: Error) => {
		console.error(e.message);
		process.exitCode = 1;
	});
}
