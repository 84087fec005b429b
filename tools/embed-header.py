#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints a header for src/http/embed.h: per file its path and a hash of what is in it.

docs/openapi.json becomes EMBED_OPENAPI_JSON_PATH and EMBED_OPENAPI_JSON_HASH.
"""
import hashlib
import os
import re
import sys

for path in sys.argv[1:]:
    name = 'EMBED_' + re.sub(r'[^A-Z0-9]', '_', os.path.basename(path).upper())
    with open(path, 'rb') as f:
        digest = hashlib.sha256(f.read()).hexdigest()[:16]
    print(f'#define {name}_PATH "{os.path.abspath(path)}"')
    print(f'#define {name}_HASH "{digest}"')
