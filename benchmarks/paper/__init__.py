"""The experiments of the density-ratio rejection paper, run with drrej's own commands."""
