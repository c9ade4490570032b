"""How quickly each format is read, and in how much memory."""
