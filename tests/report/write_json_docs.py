"""Writes the JSON Schema and the tables of docs/json.md; run it after a change of the records."""

from pathlib import Path

from pytest_asperf.report.json_schema import schema_text, tables

if __name__ == "__main__":
    Path("pytest_asperf/report/report.schema.json").write_text(schema_text(), "utf-8")
    page = Path("docs/json.md")
    head, mark, _ = page.read_text("utf-8").partition("## Every key\n\n")
    page.write_text(head + mark + tables(), "utf-8")
