# SPDX-License-Identifier: Apache-2.0
"""docs/openapi.json as a judge: every answer of berthd that the system tests see is held against it."""
import json
import pathlib
import re

import jsonschema

DOCUMENT = json.loads((pathlib.Path(__file__).resolve().parents[2] / "docs/openapi.json").read_text())

_validators = {}
_seen = set()


def validator(schema):
    """For a schema of the document, whose references point into the document."""
    text = json.dumps(schema, sort_keys=True)
    if text not in _validators:
        whole = {**schema, "components": DOCUMENT["components"]}
        _validators[text] = jsonschema.Draft202012Validator(whole)
    return _validators[text]


def component(name):
    return validator({"$ref": f"#/components/schemas/{name}"})


def explain(errors):
    said = [f"{'/'.join(map(str, e.absolute_path))}: {e.message[:300]}" for e in errors[:3]]
    return "; ".join(said + ["..."] * (len(errors) > 3))


def _pattern(path):
    return re.compile("".join("[^/]+" if part.startswith("{") else re.escape(part)
                              for part in re.split(r"(\{[^}]*\})", path)))


_paths = [(_pattern(path), item) for path, item in DOCUMENT["paths"].items()]


def operation(method, path):
    """The operation of the document that serves this, or None."""
    path = path.partition("?")[0]
    for pattern, item in _paths:
        if pattern.fullmatch(path):
            return item.get(method.lower())
    return None


def check(method, path, status, content_type, body):
    """Fails where the answer is not one that the document promises."""
    what = f"{method} {path} -> {status}"
    if (method, path, status, body) in _seen:
        return
    op = operation("get" if method == "HEAD" else method, path)
    if status >= 400:
        assert content_type == "application/problem+json", f"{what}: content type {content_type}"
        if method == "HEAD":
            return
        problem = json.loads(body)
        errors = list(component("Problem").iter_errors(problem))
        assert not errors, f"{what}: {explain(errors)}"
        assert problem["status"] == status, what
        # What any path may answer is said once, in the document's description.
        general = problem["code"] in ("not_found", "method_not_allowed", "too_large", "forbidden")
        assert general or op, f"{what}: not a path of the document"
        if not general:
            promised = op["responses"].get(str(status), {}).get("description", "")
            assert f"`{problem['code']}`" in promised, f"{what}: {problem['code']} is not promised"
        return
    assert op, f"{what}: not in the document"
    promised = op["responses"].get(str(status))
    assert promised, f"{what}: a status that is not promised"
    contents = promised.get("content")
    if not contents:
        assert body == b"", what
        return
    assert content_type.partition(";")[0] in contents, f"{what}: content type {content_type}"
    if content_type == "application/json" and method != "HEAD":
        errors = list(validator(contents[content_type]["schema"]).iter_errors(json.loads(body)))
        assert not errors, f"{what}: {explain(errors)}"
    if len(body) < 100_000 and len(_seen) < 10_000:
        _seen.add((method, path, status, body))
