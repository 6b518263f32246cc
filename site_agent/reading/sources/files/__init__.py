"""CSV and Parquet files."""
