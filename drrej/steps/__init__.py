"""The steps of the pipeline as library functions: a dump and a rejector in, a rejector or a report out."""
