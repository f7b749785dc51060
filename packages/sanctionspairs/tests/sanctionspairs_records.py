"""Small records for tests."""

from sanctionspairs.records import Pair, entity


def make(id, schema="Person", source="a", **properties):
    listed = {name: value if isinstance(value, list) else [value] for name, value in properties.items()}
    return entity({"id": id, "schema": schema, "datasets": [source], "properties": listed})


def make_pair(left, right, judgement="positive", schema="Person"):
    return Pair(make("l", schema, **left), make("r", schema, **right), judgement)
