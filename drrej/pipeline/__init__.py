"""One module per step of the pipeline, and what the steps share."""
