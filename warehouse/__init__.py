"""The only place that knows paths, Parquet and DuckDB.

It has the schemas, the store, code fingerprints and queries.
"""
