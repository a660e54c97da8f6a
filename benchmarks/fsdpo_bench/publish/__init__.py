"""Results given to others: on the Hub, and in the forms of other harnesses."""
