"""What words mean in answers: numbers, units, phrases."""
