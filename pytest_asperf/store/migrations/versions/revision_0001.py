"""Sessions, series and points."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "asperf_session",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("time", sa.Double, nullable=False),
        sa.Column("stored_at", sa.Double, nullable=False),
        sa.Column("clock_back_s", sa.Double, nullable=False),
        sa.Column("machine", sa.String(64), nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("hardware", sa.Text, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
    )
    op.create_index("asperf_session_by_machine", "asperf_session", ["machine", "stored_at"])
    op.create_table(
        "asperf_series",
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column("machine", sa.String(64), nullable=False),
        sa.Column("engine", sa.Text, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("model_sha256", sa.Text, nullable=False),
        sa.Column("settings", sa.Text, nullable=False),
        sa.Column("metric", sa.Text, nullable=False),
        sa.Column("unit", sa.Text, nullable=False),
        sa.Column("anchor", sa.Text, nullable=False),
    )
    op.create_table(
        "asperf_point",
        sa.Column("series", sa.String(16), sa.ForeignKey("asperf_series.id"), primary_key=True),
        sa.Column("session", sa.String(32), sa.ForeignKey("asperf_session.id"), primary_key=True),
        sa.Column("row", sa.Integer, primary_key=True),
        sa.Column("time", sa.Double, nullable=False),
        sa.Column("value", sa.Double, nullable=False),
        sa.Column("low", sa.Double),
        sa.Column("high", sa.Double),
        sa.Column("n", sa.Integer, nullable=False),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.Column("test", sa.Text, nullable=False),
        sa.Column("provenance", sa.Text, nullable=False),
    )
    op.create_index("asperf_point_by_time", "asperf_point", ["series", "time"])
    op.create_index("asperf_point_by_session", "asperf_point", ["session"])
