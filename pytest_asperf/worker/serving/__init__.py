"""Requests to servers: the streamed reply with its times, what it says, and many at once."""
