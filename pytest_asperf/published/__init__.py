"""Published figures and statements, and what they show."""
