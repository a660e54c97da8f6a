"""Choice of the rows of new datasets: an index of all rows, filters, samples, splits and files."""
