#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/rest.md, the REST reference, from docs/openapi.json: rest-reference.py [OPENAPI REST]."""
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
METHODS = ("get", "put", "post", "delete")
GROUPS = [("Claiming", "/claims"), ("Capacity", "/fit"), ("Capacity", "/resources"), ("Cards and VFs", "/gpus"),
          ("Cards and VFs", "/vfs"), ("The service", "/")]
LINE_MAX = 100


class Document:
    def __init__(self, path):
        self.all = json.loads(path.read_text())
        self.schemas = self.all["components"]["schemas"]

    def follow(self, item):
        """What a reference stands for, and its name; the item itself and None where it is none."""
        if "$ref" not in item:
            return item, None
        found = self.all
        for part in item["$ref"].lstrip("#/").split("/"):
            found = found[part]
        return found, item["$ref"].rsplit("/", 1)[1]

    def operations(self):
        """(method, path, item of the path, operation), by subject."""
        def subject(path):
            return next(n for n, (_, prefix) in enumerate(GROUPS) if path.startswith(prefix))

        paths = self.all["paths"]
        for path in sorted(paths, key=lambda p: (subject(p), list(paths).index(p))):
            for method in METHODS:
                if method in paths[path]:
                    yield GROUPS[subject(path)][0], method.upper(), path, paths[path], paths[path][method]


def anchor(heading):
    """As GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def link(name):
    return f"[{name}](#{anchor(name)})"


def cell(text):
    return text.replace("\n", " ").replace("|", "\\|")


def limits(schema):
    """What a value must be besides its type."""
    said = []
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        said.append(f"{low} to {high}")
    elif low is not None or high is not None:
        said.append(f"{low} or more" if low is not None else f"{high} or less")
    if "maxLength" in schema:
        said.append(f"{schema.get('minLength', 0)} to {schema['maxLength']} characters")
    if "maxItems" in schema:
        said.append(f"at most {schema['maxItems']}")
    if "maxProperties" in schema:
        said.append(f"at most {schema['maxProperties']} entries")
    if "default" in schema:
        said.append(f"default `{json.dumps(schema['default'])}`" if not isinstance(schema["default"], str)
                    else f"default `{schema['default']}`")
    return ", ".join(said)


def type_text(schema):
    if "$ref" in schema:
        return link(schema["$ref"].rsplit("/", 1)[1])
    if "oneOf" in schema:
        return " or ".join(type_text(s) for s in schema["oneOf"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return " or ".join("null" if v is None else f"`{v}`" for v in schema["enum"])
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    words = []
    for kind in kinds:
        if kind == "array":
            words.append("list of " + type_text(schema["items"]))
        elif kind == "object" and isinstance(schema.get("additionalProperties"), dict):
            words.append("object of name to " + type_text(schema["additionalProperties"]))
        else:
            words.append(kind)
    more = limits(schema)
    return " or ".join(words) + (f", {more}" if more else "")


def field_rows(document, schema, prefix=""):
    """(name, type, required, description) of an object's fields; objects without a name of their own in line."""
    required = schema.get("required", [])
    for name, field in schema["properties"].items():
        meaning = field.get("description") or document.follow(field)[0].get("description", "")
        yield prefix + name, type_text(field), name in required, meaning
        inner = field.get("items", field)
        if "properties" in inner:
            yield from field_rows(document, inner, f"{prefix}{name}{'[]' if inner is not field else ''}.")


def fields(document, schema, request=False):
    rows = list(field_rows(document, schema))
    lines = ["| field | type | |", "|---|---|---|"]
    for name, kind, required, meaning in rows:
        optional = "" if required else "Optional. " if request else "May be absent. "
        lines.append(f"| `{name}` | {cell(kind)} | {optional}{cell(meaning)} |")
    return lines


def pretty(value, indent=0):
    """JSON with short objects on one line."""
    short = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, (dict, list)) or indent + len(short) <= LINE_MAX or not value:
        return short
    blanks = " " * (indent + 2)
    if isinstance(value, dict):
        inner = [f"{blanks}{json.dumps(k)}: {pretty(v, indent + 2)}" for k, v in value.items()]
        return "{\n" + ",\n".join(inner) + "\n" + " " * indent + "}"
    return "[\n" + ",\n".join(blanks + pretty(v, indent + 2) for v in value) + "\n" + " " * indent + "]"


def example_of(document, content):
    """Value and name of the first example; (None, None) where there is none."""
    for media in content.values():
        for example in media.get("examples", {}).values():
            found, name = document.follow(example)
            return found["value"], name
    return None, None


def block(value):
    return ["```json", pretty(value), "```"] if not isinstance(value, str) else ["```", value.rstrip("\n"), "```"]


def request_example(document, method, path, operation):
    filled = path.replace("{name}", "vm1").replace("{bdf}", "0000:41:00.0" if path.startswith("/gpus") else
                                                   "0000:41:00.4")
    command = f"curl --unix-socket /run/berth/berthd.sock{'' if method == 'GET' else f' -X {method}'}"
    body, _ = example_of(document, operation.get("requestBody", {}).get("content", {}))
    if body is not None:
        command += f" \\\n  -d '{json.dumps(body)}'"
    return ["```sh", f"{command}{' ' if body is None else ' ' + chr(92) + chr(10) + '  '}http://localhost{filled}", "```"]


def parameters(item, operation):
    rows = item.get("parameters", []) + operation.get("parameters", [])
    if not rows:
        return []
    lines = ["| parameter | in | type | |", "|---|---|---|---|"]
    for p in rows:
        kind = type_text(p["schema"]) + (f", matches `{p['schema']['pattern']}`" if "pattern" in p["schema"] else "")
        default = limits(p["schema"]) if "enum" in p["schema"] else ""
        lines.append(f"| `{p['name']}` | {p['in']} | {cell(kind)}{', ' + default if default else ''} | "
                     f"{cell(p['description'])} |")
    return lines + [""]


def content_text(content):
    for kind, media in content.items():
        return type_text(media["schema"]) if kind == "application/json" else f"`{kind}`"
    return ""


def answers(operation):
    lines = ["| status | answer | |", "|---|---|---|"]
    for status, response in operation["responses"].items():
        if int(status) < 400:
            lines.append(f"| {status} | {content_text(response.get('content', {}))} | "
                         f"{cell(response['description'])} |")
    for status, response in operation["responses"].items():
        if int(status) >= 400:
            codes = ", ".join(f"[`{c}`](#errors)" for c in re.findall(r"`(\w+)`", response["description"]))
            lines.append(f"| {status} | {link('Problem')} | {codes} |")
    return lines + [""]


def route(document, method, path, item, operation, shown):
    """`shown`: {name of an example: heading under which it stands}, added to."""
    heading = f"{method} {path}"
    summary = operation["summary"] + ("" if operation["summary"].endswith("?") else ".")
    lines = [f"### {heading}", "", f"{summary} {operation['description']}", ""]
    lines += parameters(item, operation)
    if "requestBody" in operation:
        lines += [f"Body: {content_text(operation['requestBody']['content'])}.", ""]
    lines += answers(operation)
    lines += request_example(document, method, path, operation)
    for status, response in operation["responses"].items():
        value, name = example_of(document, response.get("content", {}))
        if name and shown.setdefault(name, heading) == heading:
            lines += ["", f"{status}:", ""] + block(value)
        elif name:
            lines += ["", f"{status}: as under {link(shown[name])}."]
    return lines + [""]


def errors(document):
    """The codes, from the list in the description of Problem."""
    head, _, rest = document.schemas["Problem"]["description"].partition("\n\n")
    rows = re.findall(r"^- `(\w+)` \((\d+)\): (.+)$", rest, re.M)
    lines = ["## Errors", "", head, "", "| code | status | when |", "|---|---|---|"]
    return lines + [f"| `{code}` | {status} | {cell(text)} |" for code, status, text in rows] + [""]


def objects(document):
    sent = {document.follow(m["schema"])[1] for *_, o in document.operations()
            for m in o.get("requestBody", {}).get("content", {}).values()}
    lines = ["## Objects", ""]
    for name, schema in document.schemas.items():
        text = schema["description"].partition("\n\n")[0]
        lines += [f"### {name}", "", text, ""] + fields(document, schema, name in sent) + [""]
    return lines


def render(document):
    info = document.all["info"]
    lines = ["# REST reference", "",
             "<!-- Made by tools/rest-reference.py from openapi.json: change that one, then `make docs`. -->", "",
             info["description"], "", "The examples are of a host with two L40S; long lists are shortened in them.", "",
             "| | |", "|---|---|"]
    everything = list(document.operations())
    lines += [f"| [{m} {p}](#{anchor(f'{m} {p}')}) | {o['summary']} |" for _, m, p, _, o in everything]
    last, shown = None, {}
    for group, method, path, item, operation in everything:
        if group != last:
            lines += ["", f"## {group}", ""]
        last = group
        lines += route(document, method, path, item, operation, shown)
    lines += errors(document) + objects(document)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip("\n") + "\n"


def main(arguments):
    source, target = arguments or (ROOT / "docs/openapi.json", ROOT / "docs/rest.md")
    pathlib.Path(target).write_text(render(Document(pathlib.Path(source))))


if __name__ == "__main__":
    main(sys.argv[1:])
