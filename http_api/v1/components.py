"""The components of the OpenAPI document: what the structs of requests and answers say of themselves.

An answer always has all its fields but those whose types say otherwise. Their defaults are for clients that
read an answer without them (`holdfast.wire.shape`).
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any, get_args, get_type_hints

import msgspec

from holdfast.wire.shape import LEFT_OUT, Unset

JsonObject = dict[str, Any]

_REF = "#/components/schemas/{name}"
_OUR_NAME = re.compile(r"""(?<=[/"])(?:Hold(?=Kind\b)|(\w+)Json\b)""")
"""What names of classes say and those of published components do not: that they are JSON, or whose kind."""
_NULL = {"type": "null"}


def ref(kind: type[Any]) -> JsonObject:
    """Return a reference to the component of a struct."""
    return {"$ref": _published(_REF.format(name=kind.__name__))}


def schemas_of(types: Sequence[type[Any]]) -> JsonObject:
    """Return the components for `types`, under their published names."""
    _, schemas = msgspec.json.schema_components(types, ref_template=_REF)
    published: JsonObject = msgspec.json.decode(_published(msgspec.json.encode(schemas).decode()))
    return published


def _published(text: str) -> str:
    """Return a part of the document with the published names of components."""
    return _OUR_NAME.sub(r"\1", text)


def answer_schemas(types: Sequence[type[Any]]) -> JsonObject:
    """Return the components for answers."""
    schemas = schemas_of(types)
    for kind in _structs(types):
        schema = schemas[_published(f'"{kind.__name__}"').strip('"')]
        properties = schema["properties"]
        hints = get_type_hints(kind, include_extras=True)
        schema["required"] = [name for name in properties if not _may_lack(hints[name])]
        for name, said in properties.items():
            properties[name] = _as_sent(said, hints[name])
    return schemas


def _structs(hints: Iterable[Any]) -> set[type[msgspec.Struct]]:
    """Return the structs in types, and those in the types of their fields."""
    found: set[type[msgspec.Struct]] = set()
    left = list(hints)
    while left:
        hint = left.pop()
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            left += get_type_hints(hint, include_extras=True).values() if hint not in found else ()
            found.add(hint)
        else:
            left += get_args(hint)
    return found


def _may_lack(hint: Any) -> bool:
    """Whether an answer may come without a field of this type."""
    return _is_marked(hint) or any(part is Unset or _is_marked(part) for part in get_args(hint))


def _is_marked(hint: Any) -> bool:
    return LEFT_OUT in getattr(hint, "__metadata__", ())


def _as_sent(said: JsonObject, hint: Any) -> JsonObject:
    """Return the schema of a field without what only a reader takes in its place; words by their names."""
    said = {key: part for key, part in said.items() if key != "default"}
    if any(_is_marked(part) for part in get_args(hint)):
        (said,) = [part for part in said["anyOf"] if part != _NULL]
    return _with_words(said)


def _with_words(said: JsonObject) -> JsonObject:
    if said.get("type") == "string" and "title" in said:
        return {"$ref": _REF.format(name=said["title"])}
    return said
