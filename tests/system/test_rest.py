# SPDX-License-Identifier: Apache-2.0
"""berthd's REST interface: the document, routes, problems, limits, TCP and events."""
import jsonschema

import openapi


def test_document(daemon):
    served = daemon.get("/openapi.json")
    assert served == openapi.DOCUMENT
    assert served["openapi"].startswith("3.1")
    for name, schema in served["components"]["schemas"].items():
        jsonschema.Draft202012Validator.check_schema(schema)
