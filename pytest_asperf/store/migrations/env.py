"""The script that alembic runs to bring a database to a revision; `database` has the connection."""

from alembic import context

from pytest_asperf.store.database import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    version_table=VERSION_TABLE,
    transactional_ddl=True,  # SQLite's is, where Python's driver does not interfere
)
with context.begin_transaction():
    context.run_migrations()
