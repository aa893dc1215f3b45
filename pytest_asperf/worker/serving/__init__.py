"""Requests to servers: the streamed reply with its times, its parsed content, and many at once."""
