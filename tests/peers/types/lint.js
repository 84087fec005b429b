// SPDX-License-Identifier: Apache-2.0
// Holds an OpenAPI document against the specification and common sense: lint.js NODE_MODULES DOCUMENT.
// Prints one line for each fault.
const { createConfig, lint } = require(`${process.argv[2]}/@redocly/openapi-core`);

async function main() {
	// The objects of events are named in a description only; no schema of ours can refer to them.
	const rules = { "no-unused-components": "off" };
	const config = await createConfig({ extends: ["recommended-strict"], rules });
	for (const fault of await lint({ ref: process.argv[3], config }))
		console.log(`${fault.ruleId}: ${fault.message} ${fault.location.map((l) => l.pointer).join(" ")}`);
}

main();
