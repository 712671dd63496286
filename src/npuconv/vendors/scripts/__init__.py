"""Programs that run in the environments of vendors' tools: ``serve``, and a module for each."""
