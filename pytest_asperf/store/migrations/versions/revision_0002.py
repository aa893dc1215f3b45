"""An index for the comparisons of a new series."""

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the index."""
    op.create_index("asperf_series_by_metric", "asperf_series", ["metric"])
