"""Published figures as data: printed values, with the known n and spread.

A document is a TOML file; `data/recorded/README.md` lists the permitted content. The files of that
folder ship, and a project may have its own in the same schema.
"""

from pytest_asperf.published.records.formulas import (
    DerivedCheck as DerivedCheck,
    derived_checks as derived_checks,
)
from pytest_asperf.published.records.load import (
    load_recorded as load_recorded,
    parse_recorded as parse_recorded,
    shipped_records as shipped_records,
)
from pytest_asperf.published.records.model import RecordedCell as RecordedCell, Records as Records
