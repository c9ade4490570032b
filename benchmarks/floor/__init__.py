"""What a probability of 0 should count as: candidates on real models in every storage."""
