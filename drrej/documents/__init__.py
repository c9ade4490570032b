"""The documents that flow through the pipeline: rejector, report, gates; and how they are stored."""
