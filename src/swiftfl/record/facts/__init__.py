"""Facts: what every client of a run did, step by step, and how it stands; written while the run goes on."""

from swiftfl.record.facts.format import (
    CLIENT,
    EDGE,
    FACTS,
    NO_VERSION,
    ROW,
    ClientState,
    Layout,
    Table,
    no_clients,
    no_edges,
)
from swiftfl.record.facts.joining import join
from swiftfl.record.facts.reader import FactsReader, Update
from swiftfl.record.facts.writer import FactsWriter, StepsWriter, TableFile

__all__ = [
    "CLIENT",
    "EDGE",
    "FACTS",
    "NO_VERSION",
    "ROW",
    "ClientState",
    "FactsReader",
    "FactsWriter",
    "Layout",
    "StepsWriter",
    "Table",
    "TableFile",
    "Update",
    "join",
    "no_clients",
    "no_edges",
]
