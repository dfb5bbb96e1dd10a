"""Holds lines of JSON against `$defs/NAME` of a schema: judge.py SCHEMA NAME FILE.

The schema lets new members pass, as readers must. Here each object is closed: what is printed and not described is found.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import jsonschema


def closed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    parts = {name: closed(part) for name, part in schema.items()}
    if isinstance(schema.get("properties"), dict) and "additionalProperties" not in schema:
        parts["additionalProperties"] = False
    return parts


def main() -> int:
    with open(sys.argv[1], encoding="utf-8") as file:
        schema = json.load(file)
    jsonschema.Draft202012Validator.check_schema(schema)
    judge = jsonschema.Draft202012Validator({**closed(schema), "$ref": f"#/$defs/{sys.argv[2]}"})
    found = 0
    with open(sys.argv[3], encoding="utf-8") as file:
        for line in file:
            for error in judge.iter_errors(json.loads(line)):
                found += 1
                print(f"{error.json_path}: {error.message}", file=sys.stderr)
    return 1 if found else 0


sys.exit(main())
