"""Every number of a report, computed from sealed datasets.

A new number of a benchmark, such as pass@k, belongs into ``report_numbers.py``.

The way of a number: ``pools.py`` reads the datasets that are measured together.
``sample_arrays.py`` makes arrays of their solutions. ``decoder_choices.py`` has the choices of
decoders among them. ``measure.py`` computes the means. ``result_records.py`` has the records of
``results.json``.
"""
