"""The only place that knows paths, Parquet and DuckDB: schemas, store, code fingerprints, queries."""
