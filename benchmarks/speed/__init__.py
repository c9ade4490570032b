"""Speed: drrej and its peers in the same run, on the same generated data."""
