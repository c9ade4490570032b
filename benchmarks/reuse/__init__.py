"""How well the sketch of the fitted rows notices that rows are used again, and how often it cries wolf."""
