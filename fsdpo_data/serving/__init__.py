"""The server of process reward models: step rewards over HTTP, for any number of clients."""
