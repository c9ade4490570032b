"""The mathematics: arrays in, numbers out."""
