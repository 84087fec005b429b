# SPDX-License-Identifier: Apache-2.0
"""docs/openapi.json as a document: complete, with examples that are true to it, and docs/rest.md made from it.

tests/system/openapi.py holds every answer of berthd against it.
"""
import importlib.util
import json
import pathlib
import re

import jsonschema
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENT = json.loads((ROOT / "docs/openapi.json").read_text())
OPERATIONS = {f"{method.upper()} {path}": operation for path, item in DOCUMENT["paths"].items()
              for method, operation in item.items() if method != "parameters"}
EVENTS = {"ClaimEvent", "ReleaseEvent", "CapacityEvent", "FallbackEvent", "RecoverEvent", "ChangedEvent"}


def generator():
    spec = importlib.util.spec_from_file_location("rest_reference", ROOT / "tools/rest-reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def media_types():
    """(operation, what, media type) of all that has a schema."""
    for name, operation in OPERATIONS.items():
        for kind, media in operation.get("requestBody", {}).get("content", {}).items():
            yield name, f"body {kind}", media
        for status, response in operation["responses"].items():
            for kind, media in response.get("content", {}).items():
                yield name, f"{status} {kind}", media


def test_rest_reference_is_up_to_date(tmp_path):
    generator().main([ROOT / "docs/openapi.json", tmp_path / "rest.md"])
    assert (tmp_path / "rest.md").read_text() == (ROOT / "docs/rest.md").read_text(), "run make docs"


def test_rest_reference_has_everything():
    text = (ROOT / "docs/rest.md").read_text()
    headings = re.findall(r"^#+ (.+)$", text, re.M)
    assert len(headings) == len(set(headings))
    assert set(OPERATIONS) | set(DOCUMENT["components"]["schemas"]) <= set(headings)
    anchors = {generator().anchor(h) for h in headings}
    assert not set(re.findall(r"\]\(#([^)]*)\)", text)) - anchors
    for code in DOCUMENT["components"]["schemas"]["Problem"]["properties"]["code"]["enum"]:
        assert re.search(rf"^\| `{code}` \| \d+ \| \S", text, re.M), code


def undescribed(where, schema):
    """Fields without a word about them."""
    for name, field in schema.get("properties", {}).items():
        if "$ref" not in field and not field.get("description", "").strip():
            yield f"{where}.{name}"
        for inner in (field, field.get("items", {})):
            yield from undescribed(f"{where}.{name}", inner)


@pytest.mark.parametrize("name", DOCUMENT["components"]["schemas"])
def test_schema_is_described(name):
    schema = DOCUMENT["components"]["schemas"][name]
    assert schema["description"] and schema["type"] == "object" and schema["properties"]
    assert not list(undescribed(name, schema))
    text = json.dumps(DOCUMENT["paths"])
    used = f'"#/components/schemas/{name}"' in json.dumps(DOCUMENT)
    assert used or (name in EVENTS and f"({name})" in text)


@pytest.mark.parametrize("name", OPERATIONS)
def test_operation_is_described(name):
    operation = OPERATIONS[name]
    assert operation["summary"] and operation["description"].endswith(".")
    path = DOCUMENT["paths"][name.split(" ")[1]]
    assert all(p["description"] for p in path.get("parameters", []) + operation.get("parameters", []))
    good = [r for s, r in operation["responses"].items() if int(s) < 400]
    assert good and all(r["description"] for r in good)
    with_examples = [m for n, w, m in media_types() if n == name and (w.startswith("body") or w[0] == "2")]
    assert all("examples" in m for m in with_examples) or name == "GET /openapi.json"


@pytest.mark.parametrize("name, what, media", [m for m in media_types() if "examples" in m[2]],
                         ids=lambda v: v if isinstance(v, str) else "")
def test_examples_are_true(name, what, media):
    for example in media["examples"].values():
        value = DOCUMENT["components"]["examples"][example["$ref"].rsplit("/", 1)[1]]["value"]
        schema = {**media["schema"], "components": DOCUMENT["components"]}
        jsonschema.Draft202012Validator(schema).validate(value)


def test_every_example_is_used():
    text = json.dumps(DOCUMENT["paths"])
    assert not [n for n in DOCUMENT["components"]["examples"] if f'"#/components/examples/{n}"' not in text]
