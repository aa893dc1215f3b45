"""What a session tells: rows in, text or bytes out; nothing here measures or judges."""
