// SPDX-License-Identifier: Apache-2.0
// Reads a JSON list of Kubernetes objects and checks each against the schema of its kind. What it finds
// wrong is printed, one a line.
'use strict';
const path = require('path');

const models = path.join(process.argv[2], 'node_modules', 'kubernetes-models');
const kinds = {
  'apps/v1/DaemonSet': 'apps/v1',
  'v1/ConfigMap': 'v1',
};
let text = '';
process.stdin.on('data', (chunk) => { text += chunk; });
process.stdin.on('end', () => {
  for (const object of JSON.parse(text)) {
    const key = `${object.apiVersion}/${object.kind}`;
    if (!(key in kinds)) {
      console.log(`${key}: no schema`);
      continue;
    }
    const Kind = require(path.join(models, kinds[key]))[object.kind];
    try {
      new Kind(object).validate();
    } catch (e) {
      console.log(`${key} ${object.metadata.name}: ${e.message}`);
    }
  }
});
