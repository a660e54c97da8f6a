"""Steps of solutions: their boundaries, their labels, and the aggregates of their rewards."""
