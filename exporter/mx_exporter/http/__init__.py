"""The endpoint: sockets, TLS and passwords, what a scrape asks for, and what it gets."""
