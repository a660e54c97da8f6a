"""From records to numbers with their uncertainty."""
