"""Reports of a session: rows in, text or bytes out; nothing here measures or judges."""
