"""How much of the possible coverage a certified risk keeps, by several methods."""
